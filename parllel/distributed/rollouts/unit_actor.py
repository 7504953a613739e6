"""An agent that acts for environments that are at different rows, in blocks of one size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parllel.agents.handler import Handler
from parllel.buffers.tree import buffer_map
from parllel.distributed.rollouts.env_unit import EnvUnit
from parllel.distributed.rollouts.single_rows import SingleRows
from parllel.distributed.rollouts.step_collector import StepCollector

# PyTorch rounds products of 1 to 3 rows otherwise than those of 4 or more, and the last N % 4 of these.
_ROWS_TOGETHER = 4


class UnitActor:
    """Write an agent's answers for any number of units.

    Args:
        handler: of the agent.
        rows: what the agent sees, and where its answers are written.
        batch_size: how many environments there are to act for, if none is missing.

    Attributes:
        block: how many rows the agent is given at once: `batch_size`, rounded up to a multiple of four. What
            is left over is filled with copies, so what is rounded does not depend on who was ready.
    """

    def __init__(self, handler: Handler, rows: SingleRows, batch_size: int) -> None:
        self.block = -(-batch_size // _ROWS_TOGETHER) * _ROWS_TOGETHER
        self._handler, self._rows = handler, rows
        self._recurrent = handler.agent.recurrent

    def act(self, units: Sequence[EnvUnit], collector: StepCollector) -> None:
        """Act for all environments of some units, each at the row of its unit.

        collector: says which noise belongs to the next step of each.
        """
        # Not when the observation came, as the statistics may be those of newer weights by now.
        for unit in units:
            self._rows.transform(unit.t, unit.columns)
        places = [(unit.t, column) for unit in units for column in unit.numbers]
        for i in range(0, len(places), self.block):
            self._decide(places[i : i + self.block], units, collector)

    def _decide(
        self,
        places: Sequence[tuple[int, int]],
        units: Sequence[EnvUnit],
        collector: StepCollector,
    ) -> None:
        """Write the agent's answers for at most `block` environments, given as row and column."""
        n, spare = len(places), self.block - len(places)
        rows, columns = np.array(places, np.intp).T
        padded = [*range(n), *([0] * spare)]
        numbers = columns[padded]
        if self._recurrent:
            # An agent remembers the copies too, which must not be one of the environments.
            numbers[n:] = self._rows.B + np.arange(spare)
            self._keep_states(columns, units)
        noise_places = [collector.place(column) for column in columns.tolist()]
        noise = collector.noise.of_steps([noise_places[i] for i in padded])
        seen = self._rows.gather(rows[padded], columns[padded])
        action, agent_info = self._handler.decide(seen, numbers, noise)
        self._rows.write(rows, columns, action, agent_info)

    def _keep_states(self, columns: NDArray[np.intp], units: Sequence[EnvUnit]) -> None:
        """Keep the recurrent states before the step, which is all of them that a fragment may begin with."""
        state = buffer_map(self._handler.to_numpy, self._handler.agent.initial_rnn_state(columns))
        state = self._rows.states(state)
        for unit in units:
            for i, column in enumerate(columns.tolist()):
                if column in unit.numbers:
                    unit.states[column] = buffer_map(lambda leaf, i=i: leaf[i], state)
