"""One iteration of a run, in which runners differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from parllel.algos.algorithm import Algorithm
from parllel.buffers.samples import Samples
from parllel.cages.traj_info import TrajInfo
from parllel.logging.logger import Logger
from parllel.samplers.sampler import Sampler
from parllel.types import State


class LearningCycle:
    """One iteration of on-policy learning: each batch is used once.

    Runners differ only in their LearningCycle. The runner counts the steps, times the calls of
    these methods, and runs callbacks between `sample`, `learn` and `finish`.

    Args:
        sampler: the training sampler.
        algorithm: the algorithm that learns from each batch.
    """

    # Stages of learning that are timed by the cycle; see `take_seconds`.
    stages: ClassVar[tuple[str, ...]] = ()
    # Processes that learn together.
    n_learners = 1

    def __init__(self, sampler: Sampler, algorithm: Algorithm) -> None:
        self.sampler = sampler
        self.algorithm = algorithm

    def begin(self) -> None:
        """Prepare the first iteration of a run, or the first after a resume."""

    def sample(
        self, elapsed_steps: int, *, timed: bool
    ) -> tuple[Samples, list[TrajInfo], dict[str, float]]:
        """Return a batch, its episodes and, if `timed`, the seconds that its parts took."""
        # Not every batch: reading the clock for each row costs time itself.
        if timed:
            return self.sampler.collect_timed_batch(elapsed_steps)
        return *self.sampler.collect_batch(elapsed_steps), {}

    def count_steps(self, samples: Samples) -> int:
        """Return the number of environment steps in the last batch."""
        return self.sampler.count_steps(samples)

    def learn(self, elapsed_steps: int, samples: Samples) -> Mapping[str, Any]:
        """Learn from the batch and return the algorithm's diagnostics."""
        return self.algorithm.optimize_agent(elapsed_steps, samples)

    def take_seconds(self) -> Mapping[str, float]:
        """Return how much of the time since the last call was spent in each of `stages`, out of `learn`."""
        return {}

    def finish(self) -> None:
        """End an iteration, after the callbacks for the update."""

    def row_diagnostics(self, last: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the diagnostics to log in a row, and start collecting again.

        last: what `learn` returned last.
        """
        return last

    def log(self, logger: Logger) -> None:
        """Add values of the iterations since the last row to the next one."""

    def state(self, *, replay: bool = True) -> State:
        """Return the cycle's part of the runner's state, without sampler and algorithm.

        replay: whether the state includes the replay of an off-policy run.
        """
        return {}

    def load_state(self, state: State) -> None:
        """Restore the cycle's part. `state` is the whole state of the runner."""
