"""Who acts and steps when, in a rollout worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from parllel.agents.handler import Handler
from parllel.distributed.rollouts.step_collector import StepCollector
from parllel.errors import RestartsUsedUpError
from parllel.samplers.batch_sampler import BatchSampler
from parllel.transforms.transform import StepTransform
from parllel.types import Tree


class Schedule(ABC):
    """Let an agent act in environments, and give all steps to a collector.

    Attributes:
        handler: of the agent.
        n_environments: how many there are; they are numbered from 0.
        recurrent: whether fragments end with their episodes.
        fragment_length: the only possible one, None if any is.
        step_transforms: make what the agent sees. Their statistics stay as they are until `load_weights` of
            the worker brings others.
    """

    handler: Handler
    n_environments: int
    recurrent: bool
    fragment_length: int | None = None
    step_transforms: Sequence[StepTransform] = ()

    @abstractmethod
    def begin(self, collector: StepCollector) -> None:
        """Take what gets the steps, once, before the first `advance`.

        Raises:
            Exception: what keeps the environments from starting.
        """

    @abstractmethod
    def advance(self, *, may_act: bool) -> bool:
        """Go on by as much as is done between two looks at new weights; return False if nothing was.

        Waits for no longer than some tenths of a second, if what it calls allows that.

        may_act: False while what was collected waits to be sent: no action is chosen then.
        """

    @property
    def parked(self) -> dict[int, RestartsUsedUpError]:
        """Environments that are not started again, and the errors that say why."""
        return {}

    @property
    def restarts(self) -> int:
        """How many processes of environments were started anew."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Close the environments and the handler; may be called twice."""


class SynchronousSchedule(Schedule):
    """Let a sampler make batches, at its speed; weights change between batches.

    Its actions come from the noise of fragments instead of that of batches. Batch transforms of the sampler
    would change nothing in the fragments: give it none. Statistics of its step transforms are not updated.

    Args:
        sampler: finished; closed with the schedule. Where episodes are truncated, its samples need
            `env.next_observation`.

    Raises:
        TypeError: if it is no BatchSampler, whose handler is here.
    """

    def __init__(self, sampler: BatchSampler) -> None:
        if not isinstance(sampler, BatchSampler):
            raise TypeError(
                f"SynchronousSchedule: sampler: expected a BatchSampler, got a {type(sampler).__name__}"
            )
        self.sampler = sampler
        # They are the trainer's, and come with the weights.
        sampler.updates_statistics = False
        self.step_transforms = sampler.step_transforms
        self.handler = sampler.handler
        self.n_environments = sampler.batch_spec.B
        # Samplers whose columns end with their episodes say so by this field.
        self.recurrent = getattr(sampler.samples.env, "valid", None) is not None
        self.fragment_length = sampler.batch_spec.T if self.recurrent else None

    def begin(self, collector: StepCollector) -> None:
        """Let noise come by fragments."""
        self._collector = collector
        self.handler.noise_source = self._noise

    def _noise(self, T: int, B: int) -> Tree:
        collector = self._collector
        return collector.noise.of_batch(T, [collector.place(column) for column in range(B)])

    def advance(self, *, may_act: bool) -> bool:
        """Make a batch."""
        if not may_act:
            return False
        collector = self._collector
        samples, trajs, seconds = self.sampler.collect_timed_batch(collector.n_steps)
        collector.monitor.add("receive", seconds.get("environments", 0.0))
        collector.monitor.add("inference", seconds.get("inference", 0.0))
        collector.add_episodes(trajs)
        collector.add_batch(samples, self.sampler.count_steps(samples))
        return True

    def close(self) -> None:
        """Close the sampler; may be called twice."""
        # It refers to the collector, which would live on with whoever holds the handler.
        self.handler.noise_source = None
        self.sampler.close()
