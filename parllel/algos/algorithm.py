"""The interface between a runner and whatever learns from samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from parllel.buffers.samples import Samples
from parllel.types import BatchSpec, State, Tree


class Algorithm(ABC):
    """Improve an agent with batches of samples.

    Attributes:
        agent: what is trained, if a subclass sets it. Runners refuse samplers and evaluations of another.
        on_policy: whether the samples must be those of `agent`. False for an algorithm that learns from
            anybody's actions.
    """

    on_policy: bool = True

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the paths of the fields that `optimize_agent` reads of such samples.

        Runners refuse samples without one of them, and transforms whose fields nothing reads. None, the
        default, checks nothing; neither does a subclass that overrides `optimize_agent` or
        `construct_agent_inputs` and not this.
        """
        return None

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


def fields_read(algorithm: Algorithm, samples: Samples) -> Sequence[str] | None:
    """Return what `algorithm.reads` says; None if a subclass has changed what is read without saying so."""
    for cls in type(algorithm).__mro__:
        if "reads" in vars(cls):
            return algorithm.reads(samples)
        if not {"optimize_agent", "construct_agent_inputs"}.isdisjoint(vars(cls)):
            return None
    return None
