"""Replays: memory that samplers write into and off-policy algorithms draw from."""

from parllel.replays.replay import Replay, ReplayBatch, Transitions
from parllel.replays.sum_tree import SumTree
from parllel.replays.uniform_replay import UniformReplay

__all__ = ["Replay", "ReplayBatch", "SumTree", "Transitions", "UniformReplay"]
