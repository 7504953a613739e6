"""Learning algorithms in PyTorch."""

__all__: list[str] = []
