"""Messages between a driver and its workers, and configurations of operators."""

__all__: list[str] = []
