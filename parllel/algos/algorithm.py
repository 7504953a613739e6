"""The interface between a runner and whatever learns from samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from parllel.types import BatchSpec, State, Tree


class Algorithm(ABC):
    """Improve an agent with batches of samples."""

    def check_batch_spec(self, batch_spec: BatchSpec) -> None:
        """Raise ValueError if nothing can be learned from batches of this size; runners ask at the start."""

    def prepare(self) -> None:
        """Import and make what was left until training begins; runners call it at the start of `run`.

        A policy that is only played needs no optimiser, for example, whose import takes seconds.
        """

    @abstractmethod
    def optimize_agent(self, elapsed_steps: int, samples: Tree) -> Mapping[str, Any]:
        """Learn from `samples` and return diagnostics by name.

        elapsed_steps: environment steps taken since the start of the run, this batch included.
        A diagnostic is a number (logged as it is) or an array (logged as its statistics).
        """

    def state(self) -> State:
        """Return what a checkpoint needs to continue: optimiser, schedules, random state."""
        return {}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""
