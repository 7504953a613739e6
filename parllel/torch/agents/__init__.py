"""Agents whose models are PyTorch modules."""

__all__: list[str] = []
