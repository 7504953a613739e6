"""What a runner repeats: one batch, and what is learned from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.algos.algorithm import Algorithm
from parllel.buffers.samples import Samples
from parllel.cages.traj_info import TrajInfo
from parllel.logging.logger import Logger
from parllel.samplers.sampler import Sampler
from parllel.types import State


class LearningCycle:
    """Learn from each batch once, then forget it: on-policy learning.

    Runners differ in their cycle alone. The runner counts the steps and seconds of what it calls here, and
    calls callbacks between `sample`, `learn` and `finish`.

    Args:
        sampler: of training.
        algorithm: learns from each batch.
    """

    def __init__(self, sampler: Sampler, algorithm: Algorithm) -> None:
        self.sampler = sampler
        self.algorithm = algorithm

    def begin(self) -> None:
        """Prepare the first iteration of a run, or of what is left of it after a resume."""

    def sample(
        self, elapsed_steps: int, *, timed: bool
    ) -> tuple[Samples, list[TrajInfo], dict[str, float]]:
        """Return a batch, its episodes, and if `timed` the seconds that its parts took."""
        # Not every batch: reading the clock for each row costs time itself.
        if timed:
            return self.sampler.collect_timed_batch(elapsed_steps)
        return *self.sampler.collect_batch(elapsed_steps), {}

    def learn(self, elapsed_steps: int, samples: Samples) -> Mapping[str, Any]:
        """Learn from the batch and return the algorithm's diagnostics."""
        return self.algorithm.optimize_agent(elapsed_steps, samples)

    def finish(self) -> None:
        """End an iteration; the callbacks have seen the update."""

    def log(self, logger: Logger) -> None:
        """Log what the next row is to say of the iterations since the last."""

    def state(self) -> State:
        """Return what a checkpoint needs besides sampler and algorithm; part of the runner's state."""
        return {}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned; `state` is the whole of the runner's."""
