"""Fragments of experience: cutting, packing, sending, storing, and joining them to batches."""

__all__: list[str] = []
