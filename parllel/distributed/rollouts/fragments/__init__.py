"""Pieces of experience: cut, packed, sent, stored, and joined to batches."""

__all__: list[str] = []
