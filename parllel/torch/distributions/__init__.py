"""Action distributions: stateless functions of parameter tensors."""

__all__: list[str] = []
