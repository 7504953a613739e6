"""Operating-system services: processes, waits, compilation, limits and time."""

__all__: list[str] = []
