"""Games between several operators."""

__all__: list[str] = []
