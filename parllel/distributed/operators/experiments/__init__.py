"""Experiments: operators that play the same seeds, their records, and the results."""

__all__: list[str] = []
