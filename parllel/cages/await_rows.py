"""Wait for the rows of several cages at once.

    cage: row_handles    pipes, bells and processes --------> poll: sleeps until any of them is ready
    cage: row_done       <----------------------------------- asked for the rows whose handles were ready

A cage is asked for handles first: it may empty a pipe then, which it must not do after the question.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from parllel.cages.cage_interface import CageInterface
from parllel.counted_time import SLICE_S, counted_s
from parllel.processes import Handle, Handles

# Between two questions to cages that give nothing to wait for.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 20e-6, 1e-3


def await_rows(rows: Sequence[tuple[CageInterface, int]], timeout_s: float) -> list[int]:
    """Wait until a row of any of these cages is done, and return the positions of all that are.

    rows: cage and group; several groups of a cage may be among them, and any mixture of kinds.
    timeout_s: 0 or less looks once. Time in which this process was paused does not count.

    Returns an empty list when the time is over. A row counts as done when its worker has failed or died, and
    `finish_row` raises that. Rows stay in progress: those that were not returned can be awaited again.

    Raises:
        ValueError: without rows, for which the wait would be in vain.
        WrongStateError: if nothing was started for a group.
    """
    if not rows:
        raise ValueError("await_rows: rows: expected at least one (cage, group), got none")
    everyone = range(len(rows))
    found, done = _look(rows, everyone)
    handles: list[Handle] = [handle for of_row in found for handle in of_row]
    owners = [i for i, of_row in enumerate(found) for _ in of_row]
    silent = [i for i, of_row in enumerate(found) if not of_row]
    waited, pause_s, left_s = Handles(handles), _FIRST_PAUSE_S, timeout_s
    while not done and left_s > 0:
        slice_s, began = min(left_s, pause_s if silent else SLICE_S), time.monotonic()
        if silent:
            # Longer and longer: short waits end soon after the row, and long ones cost little.
            time.sleep(slice_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        ready = waited.ready(0.0 if silent else slice_s)
        left_s -= counted_s(began, slice_s)
        asked = {*silent, *(owners[position] for position in ready)}
        _, done = _look(rows, sorted(asked or everyone))
    return done


def _look(
    rows: Sequence[tuple[CageInterface, int]], positions: Sequence[int]
) -> tuple[list[Sequence[Handle]], list[int]]:
    """Return the handles of some rows, and the positions of those that are done."""
    # All handles first: groups of a cage share a pipe that this empties, and what comes into it after is of
    # rows that were not done.
    handles = [rows[i][0].row_handles(rows[i][1]) for i in positions]
    return handles, [i for i in positions if rows[i][0].row_done(rows[i][1])]
