"""What a rollout worker is put together with, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.rollout_worker import RolloutWorker


@dataclass(frozen=True)
class WorkerPlace:
    """Where one worker of several runs, given to the function that builds it.

    Attributes:
        name: the `producer` of its fragments, unlike that of all others: "worker 3", or "worker 3, start 2"
            after a restart. Seeds that are derived from it differ too.
        storage: where its sender is to send fragments.
        statistics: what is to get its episodes.
        stack: closes what is pushed on it after the worker has ended, in reverse order.
    """

    name: str
    storage: ReplayBufferInterface
    statistics: EpisodeStatistics
    stack: ExitStack


BuildWorker: TypeAlias = Callable[[WorkerPlace], RolloutWorker]


def worker_name(number: int, start: int) -> str:
    """Return the name of a worker: its number, and from the second start on how often it was started."""
    return f"worker {number}" if start == 1 else f"worker {number}, start {start}"
