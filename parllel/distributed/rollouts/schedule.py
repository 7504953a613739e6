"""Who acts and steps when, in a rollout worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from parllel.agents.handler import Handler
from parllel.distributed.rollouts.step_collector import StepCollector
from parllel.errors import RestartsUsedUpError
from parllel.transforms.transform import StepTransform


class Schedule(ABC):
    """Let an agent act in environments, and give all steps to a collector.

    Attributes:
        handler: of the agent.
        n_environments: how many there are; they are numbered from 0.
        recurrent: whether fragments end with their episodes.
        fragment_length: the only possible one, None if any is.
        step_transforms: make what the agent sees. Their statistics stay as they are until `load_weights` of
            the worker brings others.
    """

    handler: Handler
    n_environments: int
    recurrent: bool
    fragment_length: int | None = None
    step_transforms: Sequence[StepTransform] = ()

    @abstractmethod
    def begin(self, collector: StepCollector) -> None:
        """Take what gets the steps, once, before the first `advance`.

        Raises:
            Exception: what keeps the environments from starting.
        """

    @abstractmethod
    def advance(self, *, may_act: bool) -> bool:
        """Go on by as much as is done between two looks at new weights; return False if nothing was.

        Waits for no longer than some tenths of a second, if what it calls allows that.

        may_act: False while what was collected waits to be sent: no action is chosen then.
        """

    @property
    def parked(self) -> dict[int, RestartsUsedUpError]:
        """Environments that are not started again, and the errors that say why."""
        return {}

    @property
    def restarts(self) -> int:
        """How many processes of environments were started anew."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Close the environments and the handler; may be called twice."""
