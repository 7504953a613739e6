"""Trained policies as modules and files that work without parllel."""

__all__: list[str] = []
