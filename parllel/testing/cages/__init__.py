"""Contracts of cages."""

__all__: list[str] = []
