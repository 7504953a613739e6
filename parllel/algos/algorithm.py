"""The algorithm interface, through which runners learn from samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from parllel.algos.learner_group import LearnerGroup
from parllel.buffers.samples import Samples
from parllel.types import BatchSpec, State, Tree


class Algorithm(ABC):
    """Learning algorithm that improves an agent with batches of samples.

    Attributes:
        agent: the trained agent, if a subclass sets it. Runners reject samplers of another agent.
        on_policy: whether the samples must come from `agent`. False for algorithms that learn from
            the actions of any policy.
        update_method: how updates are computed, if a subclass has several ways; runners name it in the log.
    """

    on_policy: bool = True
    update_method: str | None = None

    def __repr__(self) -> str:
        agent = getattr(self, "agent", None)
        return f"{type(self).__name__}({'' if agent is None else repr(agent)})"

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the paths of the fields that `optimize_agent` reads.

        Runners reject samples that lack one of them, and transforms whose fields nothing reads. None, the
        default, disables the checks. So does a subclass that overrides `optimize_agent` or
        `construct_agent_inputs` but not this method.
        """
        return None

    def check_batch_spec(self, batch_spec: BatchSpec) -> None:
        """Raise ValueError for an unsuitable batch size. Called by runners at the start."""

    def join(self, learners: LearnerGroup, batch_spec: BatchSpec) -> None:
        """Learn together with other processes from now on. Called by runners once, at construction.

        All learners call `optimize_agent` at the same time, each with its own columns of the batch, and must
        hold equal weights and states afterwards.

        batch_spec: size of the part of the batch that this learner receives.

        Raises:
            TypeError: by default, as the algorithm does not support it.
        """
        raise TypeError(f"{type(self).__name__} does not support several learners")

    def prepare(self) -> None:
        """Do deferred imports and initialization. Called by runners at the start of `run`.

        For example, a policy used only for inference does not need the optimiser, which takes
        seconds to import.
        """

    @abstractmethod
    def optimize_agent(self, elapsed_steps: int, samples: Tree) -> Mapping[str, Any]:
        """Learn from `samples` and return diagnostics, keyed by name.

        elapsed_steps: environment steps taken since the start of the run, this batch included.
        A diagnostic is a number (logged as it is) or an array (logged as its statistics).
        """

    def state(self) -> State:
        """Return the state for a checkpoint: optimiser, schedules, random state."""
        return {}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""


def fields_read(algorithm: Algorithm, samples: Samples) -> Sequence[str] | None:
    """Return `algorithm.reads`, or None if a subclass overrides learning but not `reads`."""
    for cls in type(algorithm).__mro__:
        if "reads" in vars(cls):
            return algorithm.reads(samples)
        if not {"optimize_agent", "construct_agent_inputs"}.isdisjoint(vars(cls)):
            return None
    return None
