"""Learning from fragments."""

from __future__ import annotations

from typing import Any

from parllel.algos.algorithm import Algorithm
from parllel.distributed.rollouts.arguments import check_count
from parllel.distributed.rollouts.fragment_sampler import FragmentSampler
from parllel.runners.asynchronous_runner import AsynchronousCycle, AsynchronousRunner
from parllel.samplers.sampler import Sampler
from parllel.types import BatchSpec


class TrainerCycle(AsynchronousCycle):
    """Learn from batches of fragments, and publish every so many updates.

    Attributes:
        publish_interval: how many.

    Raises:
        TypeError: if the sampler is no FragmentSampler.
    """

    def __init__(self, sampler: Sampler, algorithm: Algorithm) -> None:
        if not isinstance(sampler, FragmentSampler):
            raise TypeError(
                f"sampler: expected a FragmentSampler, got {type(sampler).__name__}; AsynchronousRunner "
                "takes other samplers that publish weights"
            )
        super().__init__(sampler, algorithm)
        self.publish_interval = 1
        self._since = 0  # updates since the weights were published

    def begin(self) -> None:
        """Publish the weights: workers may have begun with others."""
        super().begin()
        self._since = 0

    def publish(self) -> None:
        """Publish the weights if it is time for it."""
        self._since += 1
        # Counted in updates and not in time, so that a run can be repeated.
        if self._since >= self.publish_interval:
            super().publish()
            self._since = 0


class Trainer(AsynchronousRunner):
    """Learn from batches of fragments while workers make the next.

    Weights are published before the first batch, and then after every `publish_interval` updates. A larger
    interval costs the workers less, and makes experience older: a version is that many updates, and
    `max_staleness` of a ReplayBuffer counts versions.

    A checkpoint has the agent, the algorithm, the counters, the transforms and the statistics of episodes. A
    run that goes on from it begins new episodes, as the environments are the workers', with no fragments, and
    goes on with the numbers of versions.

    Args:
        batch_spec, sampler, algorithm: as for `Runner`; the sampler is a FragmentSampler whose handler has
            the algorithm's agent.
        publish_interval: updates between versions of the weights.
        arguments: those of `Runner`.

    Raises:
        TypeError: for another sampler.
        ValueError: if the interval is less than one, and as `AsynchronousRunner`.
    """

    cycle_class = TrainerCycle
    cycle: TrainerCycle

    def __init__(
        self,
        batch_spec: BatchSpec,
        sampler: FragmentSampler,
        algorithm: Algorithm,
        *,
        publish_interval: int = 1,
        **arguments: Any,
    ) -> None:
        check_count("publish_interval", publish_interval)
        super().__init__(batch_spec, sampler, algorithm, **arguments)
        if batch_spec != sampler.batch_spec:
            raise ValueError(
                f"batch_spec: expected {sampler.batch_spec}, that of the sampler, got {batch_spec}"
            )
        self.cycle.publish_interval = publish_interval
