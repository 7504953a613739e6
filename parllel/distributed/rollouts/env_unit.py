"""Environments that are stepped together, and what they are doing."""

from __future__ import annotations

import enum

from parllel.cages.cage_interface import CageInterface
from parllel.distributed.rollouts.env_worker import EnvWorker
from parllel.types import Tree


class Doing(enum.Enum):
    """What the environments of a unit are doing."""

    MAKING = "its construction"
    RESETTING = "a reset"
    STEPPING = "a step"
    WAITING = "waiting for an action"
    PAUSED = "waiting for its restart"
    PARKED = "nothing any more"


class EnvUnit:
    """A cage, or the worker that has it, and the columns of its environments.

    Attributes:
        columns: of the samples.
        numbers: of the environments, which are their columns.
        n: how many there are.
        worker: what starts the process again when it dies; None for a plain cage, whose errors are raised.
        doing: what the environments do now.
        t: the row of the present observation.
        version: of the weights that chose the last action.
        states: recurrent states before the present step, by column.
        since_s: when what is being done was started, on the schedule's clock.
        due_s: when a pause ends, by `time.monotonic`.
    """

    def __init__(self, source: EnvWorker | CageInterface, columns: slice) -> None:
        self.columns = columns
        # Not properties, as they are asked for in every step.
        self.numbers = range(columns.start, columns.stop)
        self.n = len(self.numbers)
        self.worker = source if isinstance(source, EnvWorker) else None
        self._cage = source if isinstance(source, CageInterface) else None
        self.doing = Doing.MAKING
        self.t = self.version = 0
        self.states: dict[int, Tree] = {}
        self.since_s = self.due_s = 0.0

    @property
    def cage(self) -> CageInterface:
        """The cage that there is now."""
        if self.worker is not None:
            return self.worker.cage
        assert self._cage is not None
        return self._cage
