"""Distributions over actions: stateless arithmetic on tensors of parameters."""

__all__: list[str] = []
