"""What is said between a driver and its workers, and what operators are."""

__all__: list[str] = []
