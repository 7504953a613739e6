"""Experiments: episodes for each seed, records, results."""

__all__: list[str] = []
