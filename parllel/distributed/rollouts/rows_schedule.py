"""All environments in step, as a sampler of the core steps them."""

from __future__ import annotations

from parllel.distributed.rollouts.schedule import Schedule
from parllel.distributed.rollouts.step_collector import StepCollector
from parllel.samplers.batch_sampler import BatchSampler
from parllel.types import Tree


class RowsSchedule(Schedule):
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
                f"RowsSchedule: sampler: expected a BatchSampler, got a {type(sampler).__name__}"
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
