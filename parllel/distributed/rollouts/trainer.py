"""The trainer, which learns from fragments while workers collect more."""

# publish --> workers start -- fragments --> collect_batch --> update --> publish --> ...
# Workers wait for the first weights, and later only for room in the storage. The trainer waits for
# them in `collect_batch`.

from __future__ import annotations

from typing import Any

from parllel.algos.algorithm import Algorithm
from parllel.distributed.rollouts.arguments import check_count
from parllel.distributed.rollouts.fragment_sampler import FragmentSampler
from parllel.runners.asynchronous_runner import AsynchronousCycle, AsynchronousRunner
from parllel.samplers.sampler import Sampler
from parllel.types import BatchSpec


class TrainerCycle(AsynchronousCycle):
    """Learns from batches of fragments, and publishes weights at an interval of updates.

    Attributes:
        publish_interval: number of updates between publications.

    Raises:
        TypeError: if the sampler is not a FragmentSampler.
    """

    def __init__(self, sampler: Sampler, algorithm: Algorithm) -> None:
        if not isinstance(sampler, FragmentSampler):
            raise TypeError(
                f"sampler: expected a FragmentSampler, got {type(sampler).__name__}; AsynchronousRunner "
                "accepts other samplers that publish weights"
            )
        super().__init__(sampler, algorithm)
        self.publish_interval = 1
        self._since = 0  # updates since the weights were published

    def begin(self) -> None:
        """Publish the initial weights. Workers wait for them before they start."""
        # Calls the sampler, not `publish` below: the interval starts with the first weights.
        super().begin()
        self._since = 0

    def publish(self) -> None:
        """Publish the weights if the interval is over."""
        self._since += 1
        # Counted in updates rather than seconds, so that a run is reproducible.
        if self._since >= self.publish_interval:
            # If it raises, the publication stays due.
            super().publish()
            self._since = 0


class Trainer(AsynchronousRunner):
    """Learns from batches of fragments while workers collect the next ones.

    Weights are published before the first batch, and then after every `publish_interval` updates. A larger
    interval costs the workers less but makes experience older: a version spans that many updates, and
    `max_staleness` of a ReplayBuffer counts versions.

    A checkpoint holds the agent, the algorithm, the counters, the transforms and the episode statistics. A
    resumed run begins with new episodes, because the workers own the environments, and without fragments.
    Version numbers continue.

    Args:
        batch_spec, sampler, algorithm: arguments of `Runner`. The sampler must be a FragmentSampler
            whose handler holds the algorithm's agent.
        publish_interval: number of updates between versions of the weights.
        arguments: further arguments of `Runner`.

    Raises:
        TypeError: for any other sampler.
        ValueError: if the interval is less than 1, and for the reasons listed at
            `AsynchronousRunner`.
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
                f"batch_spec: expected {sampler.batch_spec} as in the sampler, got {batch_spec}"
            )
        self.cycle.publish_interval = publish_interval
