"""The machine: processes, waiting, compilation, limits, time."""

__all__: list[str] = []
