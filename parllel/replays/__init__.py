"""Replays: memory that samplers write into and off-policy algorithms draw from."""

from parllel.replays.prioritized_replay import PrioritizedReplay
from parllel.replays.replay import Replay, ReplayBatch, Transitions
from parllel.replays.sequence_replay import SequenceReplay, Sequences
from parllel.replays.sum_tree import SumTree
from parllel.replays.uniform_replay import UniformReplay

__all__ = [
    "PrioritizedReplay",
    "Replay",
    "ReplayBatch",
    "SequenceReplay",
    "Sequences",
    "SumTree",
    "Transitions",
    "UniformReplay",
]
