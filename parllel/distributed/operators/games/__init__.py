"""Games of several operators."""

__all__: list[str] = []
