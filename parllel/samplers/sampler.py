"""The interface of samplers, as runners use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves
from parllel.cages.traj_info import TrajInfo
from parllel.types import Closeable, State


class Sampler(Closeable, ABC):
    """Fill batches with experience."""

    @abstractmethod
    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Fill the buffer; return it and the episodes that ended meanwhile.

        elapsed_steps: number of environment steps before this batch.

        The samples are the sampler's own buffer, which the next call overwrites.
        """

    def collect_timed_batch(
        self, elapsed_steps: int
    ) -> tuple[Samples, list[TrajInfo], dict[str, float]]:
        """Return what `collect_batch` does, and the seconds that parts of it took, by name.

        A sampler that does not know its parts returns none.
        """
        return *self.collect_batch(elapsed_steps), {}

    def count_steps(self, samples: Samples) -> int:
        """Return the number of environment steps in a batch, as runners count them.

        This is rows times columns or, if there is a field `env.valid`, the number of its true entries.
        A sampler that fills fewer rows must return only those, `samples[:n]`, or write `env.valid`, so that
        nothing is learned from rows of an earlier batch. Override this method for any other rule.

        Raises:
            TypeError: if the batch is not made of Samples.
        """
        if not isinstance(samples, Samples):
            raise TypeError(
                f"{type(self).__name__}: expected Samples, got {type(samples).__name__}; override count_steps"
            )
        # Rows that no environment was stepped in are no experience, and must not move schedules on.
        valid = getattr(samples.env, "valid", None)
        if valid is not None:
            return int(np.count_nonzero(np.asarray(valid)))
        # The samples' own shape, as a sampler may return fewer rows than its batch spec says.
        _, done = next(buffer_leaves(samples.env.done))
        T, B = done.shape[:2]
        return int(T * B)

    @property
    def stats(self) -> dict[str, Any]:
        """Return the statistics of the transforms for the log, by name."""
        return {}

    def overview(self) -> str:
        """Return some lines for people about what fills the batches, shown below the progress bar; or ""."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Close the cages and the handler; may be called twice."""

    def state(self, *, environments: bool = True) -> State:
        """Return what a checkpoint needs to continue after the last batch.

        environments: whether to include the states of the environments and their episodes in progress.
        """
        return {}

    def load_state(self, state: State) -> None:
        """Restore what `state` returned.

        Without the states of environments, environments that have started stay as they are. Others are
        seeded so that they do not repeat the first episodes of the run that was saved.
        """

    @property
    def unsaved_environments(self) -> dict[str, int]:
        """How many environments could not save their state in the last `state`, by what has none."""
        return {}
