"""Interface of samplers, used by runners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves
from parllel.cages.traj_info import TrajInfo
from parllel.types import Closeable, State


class Sampler(Closeable, ABC):
    """Fills batches with experience."""

    def __repr__(self) -> str:
        """Describe the parts that this sampler has, one per line."""
        spec = getattr(self, "batch_spec", None)
        lines = [
            type(self).__name__
            if spec is None
            else f"{type(self).__name__}(T={spec.T}, B={spec.B})"
        ]
        for name in ("cages", "handler", "step_transforms", "batch_transforms"):
            part = getattr(self, name, None)
            if part is not None and part != []:
                lines.append(f"  {name:<17} {part!r}")
        return "\n".join(lines)

    @abstractmethod
    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Fill the buffer; return it and the episodes that ended in this batch.

        elapsed_steps: number of environment steps before this batch.

        The returned samples are the sampler's own buffer, which the next call overwrites.
        """

    def collect_timed_batch(
        self, elapsed_steps: int
    ) -> tuple[Samples, list[TrajInfo], dict[str, float]]:
        """Like `collect_batch`, but also return the seconds spent in each part, by name; {} if unknown."""
        return *self.collect_batch(elapsed_steps), {}

    def count_steps(self, samples: Samples) -> int:
        """Return the number of environment steps in a batch.

        This is the number of rows times columns or, if there is a field `env.valid`, the number of
        its true entries. A sampler that fills fewer rows must return only those, `samples[:n]`, or
        write `env.valid`. Otherwise the agent would learn from rows of an earlier batch. Override
        this method for any other rule.

        Raises:
            TypeError: if the batch is not a Samples.
        """
        if not isinstance(samples, Samples):
            raise TypeError(
                f"{type(self).__name__}: expected Samples, got {type(samples).__name__}; override count_steps"
            )
        # Cells without a step are not experience, and must not advance schedules.
        valid = getattr(samples.env, "valid", None)
        if valid is not None:
            return int(np.count_nonzero(np.asarray(valid)))
        # The actual shape, as a sampler may return fewer rows than its batch spec has.
        _, done = next(buffer_leaves(samples.env.done))
        T, B = done.shape[:2]
        return int(T * B)

    @property
    def stats(self) -> dict[str, Any]:
        """The statistics of the transforms to log, keyed by name."""
        return {}

    def overview(self) -> str:
        """Return a summary of the sampling processes for display below the progress bar, or ""."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Close the cages and the handler. Idempotent."""

    def state(self, *, environments: bool = True) -> State:
        """Return the state after the last batch, for a checkpoint.

        environments: whether to include the states of the environments and their episodes in progress.
        """
        return {}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Without the states of environments, environments that have already started are left as they are.
        Others get new seeds, so that they do not repeat the first episodes of the saved run.
        """

    @property
    def unsaved_environments(self) -> dict[str, int]:
        """Number of environments that `state` could not save when last called, keyed by class name."""
        return {}
