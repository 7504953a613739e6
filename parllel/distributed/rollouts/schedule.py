"""Schedules: the order of acting and stepping in a rollout worker."""

# One thread at a time calls a schedule: the one that holds `RolloutWorker._at_work`. Only `parked`
# and `restarts` are read by others, through `RolloutWorker.status`.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from parllel.agents.handler import Handler
from parllel.distributed.rollouts.step_collector import StepCollector
from parllel.errors import RestartsUsedUpError
from parllel.samplers.batch_sampler import BatchSampler
from parllel.samplers.lost_steps import check_no_restarts
from parllel.transforms.transform import StepTransform
from parllel.types import Tree


class Schedule(ABC):
    """Runs an agent in environments, and passes all steps to a collector.

    Attributes:
        handler: the agent's handler.
        n_environments: number of environments, which are numbered from 0.
        recurrent: True if fragments end with their episodes.
        fragment_length: the only fragment length that the schedule supports. None if it supports
            any.
        step_transforms: compute the agent's observations. Their statistics change only with the worker's
            `load_weights`.
    """

    handler: Handler
    n_environments: int
    recurrent: bool
    fragment_length: int | None = None
    step_transforms: Sequence[StepTransform] = ()

    @abstractmethod
    def begin(self, collector: StepCollector) -> None:
        """Start the environments, and set the collector of their steps. Called once, before `advance`.

        Raises:
            Exception: the error that prevents the environments from starting.
        """

    @abstractmethod
    def advance(self, *, may_act: bool) -> bool:
        """Run one turn. Returns False if there was nothing to do.

        New weights can be loaded after a turn.

        Blocks for at most a few tenths of a second, unless an environment takes longer.

        may_act: False while the queue of fragments is full. The agent then chooses no actions.
        """

    @property
    def parked(self) -> dict[int, RestartsUsedUpError]:
        """Environments that are no longer restarted, with the errors that explain why."""
        return {}

    @property
    def restarts(self) -> int:
        """Number of environment processes that were restarted."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Close the environments and the handler. Idempotent."""


class SynchronousSchedule(Schedule):
    """Collects batches with a sampler. Weights change between batches.

    Actions use the noise of fragments instead of the noise of batches. Batch transforms of the sampler would
    not affect the fragments, so use none. Statistics of its step transforms are not updated.

    Args:
        sampler: a complete sampler. The schedule closes it. If episodes are truncated, its samples
            need `env.next_observation`.

    Raises:
        TypeError: if it is not a BatchSampler, whose handler is in this process.
        ValueError: if its cages restart dead processes.
    """

    def __init__(self, sampler: BatchSampler) -> None:
        if not isinstance(sampler, BatchSampler):
            raise TypeError(
                f"SynchronousSchedule: sampler: expected a BatchSampler, got a {type(sampler).__name__}"
            )
        check_no_restarts(
            sampler.cages.cages,
            "SynchronousSchedule",
            "fragments are cut from batches without lost steps; use an AsynchronousSchedule, whose "
            "EnvWorkers are restarted",
        )
        self.sampler = sampler
        # The trainer owns the statistics, and publishes them with the weights.
        sampler.updates_statistics = False
        self.step_transforms = sampler.step_transforms
        self.handler = sampler.handler
        self.n_environments = sampler.batch_spec.B
        # Only samplers whose columns end with their episodes have this field.
        self.recurrent = getattr(sampler.samples.env, "valid", None) is not None
        self.fragment_length = sampler.batch_spec.T if self.recurrent else None

    def begin(self, collector: StepCollector) -> None:
        """Replace the handler's noise by the noise of fragments."""
        self._collector = collector
        self.handler.noise_source = self._noise

    def _noise(self, T: int, B: int) -> Tree:
        # Called before row 0 of a batch, so these are the places of the first row.
        collector = self._collector
        return collector.noise.of_batch(T, [collector.place(column) for column in range(B)])

    def advance(self, *, may_act: bool) -> bool:
        """Collect a batch."""
        # Between batches no environment is in the middle of a step, so there are no answers to
        # receive while the queue is full.
        if not may_act:
            return False
        collector = self._collector
        samples, trajs, seconds = self.sampler.collect_timed_batch(collector.n_steps)
        collector.monitor.add("receive", seconds.get("environments", 0.0))
        collector.monitor.add("inference", seconds.get("inference", 0.0))
        # Before the batch: these have left the cages, and must not be lost if it raises.
        collector.add_episodes(trajs)
        # Copies the rows before it returns: the sampler overwrites them with its next batch.
        collector.add_batch(samples, self.sampler.count_steps(samples))
        return True

    def close(self) -> None:
        """Close the sampler. Idempotent."""
        # The noise source refers to the collector, which would live as long as the handler.
        self.handler.noise_source = None
        self.sampler.close()
