"""Trees to bytes and JSON and back, without pickle."""

__all__: list[str] = []
