"""Agents that run in other processes than their environment's physics: both sides of a run."""

__all__: list[str] = []
