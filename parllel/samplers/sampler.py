"""What runners know of a sampler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from parllel.buffers import Samples, buffer_leaves
from parllel.cages import TrajInfo
from parllel.types import State

SamplerT = TypeVar("SamplerT", bound="Sampler")


class Sampler(ABC):
    """Fill batches with experience."""

    @abstractmethod
    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Return the filled buffer and the episodes that ended on the way.

        elapsed_steps: environment steps taken before this batch. The samples are the sampler's own
        buffer: they stay as they are until the next call.
        """

    def collect_timed_batch(
        self, elapsed_steps: int
    ) -> tuple[Samples, list[TrajInfo], dict[str, float]]:
        """Return what `collect_batch` does, and the seconds that parts of it took, by name.

        A sampler that does not know its parts returns none.
        """
        return *self.collect_batch(elapsed_steps), {}

    def count_steps(self, samples: Samples) -> int:
        """Return how many environment steps the last batch holds: what runners count.

        They are its rows times its columns or, where there is a field `env.valid`, the entries that are true.
        A sampler that fills fewer rows returns those alone, `samples[:n]`, or writes `env.valid`, so that
        nothing is learned from what an earlier batch has left in the others. Override it where neither tells.

        Raises:
            TypeError: if the batch is not made of Samples.
        """
        if not isinstance(samples, Samples):
            raise TypeError(
                f"{type(self).__name__}: expected Samples, got {type(samples).__name__}; override count_steps"
            )
        valid = getattr(samples.env, "valid", None)
        if valid is not None:
            return int(np.count_nonzero(np.asarray(valid)))
        _, done = next(buffer_leaves(samples.env.done))
        T, B = done.shape[:2]
        return int(T * B)

    @property
    def stats(self) -> dict[str, Any]:
        """Return what is worth logging of the transforms, by name."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Close the cages and the handler; may be called twice."""

    def state(self, *, environments: bool = True) -> State:
        """Return what a checkpoint needs to continue after the last batch.

        environments: whether with those of the environments and their episodes in progress.
        """
        return {}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned.

        Without states of environments, theirs stay as they are; those that have not started yet play other
        episodes than at the start of the run that `state` is from.
        """

    @property
    def unsaved_environments(self) -> dict[str, int]:
        """How many environments do not offer their state, by the name of what does not; after `state`."""
        return {}

    def __enter__(self: SamplerT) -> SamplerT:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
