"""The Game interface, the built-in games, and adapters for environments of other libraries."""

__all__: list[str] = []
