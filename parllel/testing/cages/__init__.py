"""The contracts of cages."""

__all__: list[str] = []
