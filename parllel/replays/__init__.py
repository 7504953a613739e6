"""Replays: memory that samplers write into and off-policy algorithms draw from."""

from parllel.replays.replay import Replay, ReplayBatch, Transitions

__all__ = ["Replay", "ReplayBatch", "Transitions"]
