"""Groups of environments that are stepped together, their phases, and acting for several of them."""

# All of this belongs to the thread that runs the schedule. The process of a cage writes to the
# group's columns only, and only between `start_reset` or `start_row` and `finish_row`.

from __future__ import annotations

import enum
import math
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parllel.agents.handler import Handler
from parllel.buffers.tree import buffer_map
from parllel.cages.cage_interface import CageInterface
from parllel.distributed.rollouts.arguments import check_integer, check_seconds
from parllel.distributed.rollouts.env_worker import EnvWorker
from parllel.distributed.rollouts.single_rows import SingleRows
from parllel.distributed.rollouts.step_collector import StepCollector
from parllel.types import Tree


class GroupPhase(enum.Enum):
    """What the environments of a group are doing."""

    MAKING = "its construction"
    RESETTING = "a reset"
    STEPPING = "a step"
    WAITING = "waiting for an action"
    CLOSING = "its closing"
    PAUSED = "waiting for its restart"
    PARKED = "nothing any more"


class CageGroup:
    """A cage, or the EnvWorker that owns it, with the columns of its environments.

    Attributes:
        columns: columns of the samples.
        numbers: numbers of the environments, equal to their columns.
        n: number of environments.
        worker: the EnvWorker that restarts the process when it dies. None for a plain cage, whose
            errors are raised.
        phase: what the environments are doing.
        t: row of the current observation.
        version: version of the weights that chose the last action.
        states: recurrent states before the current step, keyed by column.
        since_s: start of the current phase, on the schedule's clock.
        due_s: end of a pause, on the `time.monotonic` clock.
    """

    def __init__(self, source: EnvWorker | CageInterface, columns: slice) -> None:
        self.columns = columns
        # Attributes rather than properties, because every step reads them.
        self.numbers = range(columns.start, columns.stop)
        self.n = len(self.numbers)
        self.worker = source if isinstance(source, EnvWorker) else None
        self._cage = source if isinstance(source, CageInterface) else None
        self.phase = GroupPhase.MAKING
        self.t = self.version = 0
        self.states: dict[int, Tree] = {}
        self.since_s = self.due_s = 0.0

    @property
    def cage(self) -> CageInterface:
        """The current cage."""
        # Looked up on each use, because a restart replaces the cage.
        if self.worker is not None:
            return self.worker.cage
        assert self._cage is not None
        return self._cage


# Phases that end soon: construction and pauses may take long, and parking is for good.
_ALIVE = (GroupPhase.WAITING, GroupPhase.STEPPING, GroupPhase.RESETTING)


class WaitingGroups:
    """Collects groups that wait for an action until there are enough of them.

    Args:
        groups: all groups.
        batch_size: number of waiting environments at which the agent acts.
        max_wait_s: maximum time in seconds that the first waiting group waits for others.

    Raises:
        TypeError, ValueError: for invalid numbers.
    """

    def __init__(self, groups: Sequence[CageGroup], batch_size: int, max_wait_s: float) -> None:
        n_environments = sum(group.n for group in groups)
        if not 1 <= check_integer("batch_size", batch_size) <= n_environments:
            raise ValueError(
                f"batch_size: expected 1 to {n_environments}, the number of environments, got "
                f"{batch_size}; with a larger batch_size, every batch would wait for max_wait_s"
            )
        if check_seconds("max_wait_s", max_wait_s) < 0:
            raise ValueError(f"max_wait_s: expected 0 or more seconds, got {max_wait_s}")
        # All groups, whose phases the schedule changes: `left_s` only reads them.
        self._groups = groups
        self._batch_size, self._max_wait_s = batch_size, max_wait_s
        self._waiting: list[CageGroup] = []
        self._first_answer = 0.0

    def add(self, group: CageGroup) -> None:
        """Add a group that has answered."""
        group.phase = GroupPhase.WAITING
        # Counted from the first answer, or each further one would extend the wait.
        if not self._waiting:
            self._first_answer = time.monotonic()
        self._waiting.append(group)

    def take(self) -> list[CageGroup]:
        """Remove and return all waiting groups, in the order of their answers."""
        taken, self._waiting = self._waiting, []
        return taken

    def left_s(self) -> float:
        """Return how long to wait for more groups: 0 if it is time to act, infinity if none is waiting."""
        if not self._waiting:
            return math.inf
        ready = sum(group.n for group in self._waiting)
        if ready >= self._batch_size:
            return 0.0
        left_s = self._first_answer + self._max_wait_s - time.monotonic()
        if left_s <= 0:
            return 0.0
        # Nobody is left who could answer soon, so waiting longer would gain nothing.
        all_waiting = ready == sum(group.n for group in self._groups if group.phase in _ALIVE)
        return 0.0 if all_waiting else left_s


# PyTorch rounds products of 1 to 3 rows differently from 4 or more, and likewise the last N % 4 of these.
_ROWS_TOGETHER = 4


class GroupActor:
    """Computes an agent's actions for any number of groups, in blocks of fixed size.

    Args:
        handler: handler of the agent.
        rows: holds the agent's observations, and receives its outputs.
        batch_size: usual number of environments to act for.

    Attributes:
        block: number of rows per call of the agent: `batch_size`, rounded up to a multiple of four. A block
            is filled up with copies, so rounding does not depend on which environments were ready.
    """

    def __init__(self, handler: Handler, rows: SingleRows, batch_size: int) -> None:
        self.block = -(-batch_size // _ROWS_TOGETHER) * _ROWS_TOGETHER
        self._handler, self._rows = handler, rows
        self._recurrent = handler.agent.recurrent

    def act(self, groups: Sequence[CageGroup], collector: StepCollector) -> None:
        """Act for all environments of some groups, each at the row of its group.

        collector: provides the noise of each environment's next step.
        """
        # Now rather than on arrival of the observation: the statistics must belong to the current weights.
        for group in groups:
            self._rows.transform(group.t, group.columns)
        # Cells rather than groups, because a block may end in the middle of a group.
        places = [(group.t, column) for group in groups for column in group.numbers]
        for i in range(0, len(places), self.block):
            self._decide(places[i : i + self.block], groups, collector)

    def _decide(
        self,
        places: Sequence[tuple[int, int]],
        groups: Sequence[CageGroup],
        collector: StepCollector,
    ) -> None:
        """Write the agent's outputs for at most `block` cells, given as row and column."""
        n, spare = len(places), self.block - len(places)
        rows, columns = np.array(places, np.intp).T
        # Filled up with copies of the first cell, whose results `SingleRows.write` drops.
        padded = [*range(n), *([0] * spare)]
        numbers = columns[padded]
        if self._recurrent:
            # The agent keeps a recurrent state for each copy, too: under numbers of no environment.
            # Fancy indexing has made a copy, so `columns` keeps the numbers of the environments.
            numbers[n:] = self._rows.B + np.arange(spare)
            # Before `decide`, which advances the states.
            self._keep_states(columns, groups)
        # Still the places of this step, which is counted only when its answer is added.
        noise_places = [collector.place(column) for column in columns.tolist()]
        noise = collector.noise.of_steps([noise_places[i] for i in padded])
        seen = self._rows.gather(rows[padded], columns[padded])
        action, agent_info = self._handler.decide(seen, numbers, noise)
        # Before the next block: the arrays may be the agent's own, which it fills again.
        self._rows.write(rows, columns, action, agent_info)

    def _keep_states(self, columns: NDArray[np.intp], groups: Sequence[CageGroup]) -> None:
        """Keep the recurrent states before the step, with which a fragment may begin."""
        state = buffer_map(self._handler.to_numpy, self._handler.agent.initial_rnn_state(columns))
        state = self._rows.states(state)
        for group in groups:
            for i, column in enumerate(columns.tolist()):
                if column in group.numbers:
                    # Kept until the answer arrives, because the fragment may begin with this step.
                    group.states[column] = buffer_map(lambda leaf, i=i: leaf[i], state)
