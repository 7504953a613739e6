"""Wait for the rows of several cages at once.

cage: handles         pipes and processes --------------> poll: sleeps until any of them is ready
wakeup pipe of a cage <---------------------------------- drained, before its rows are asked
cage: done            <---------------------------------- asked for the rows whose handles were ready
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from parllel.cages.cage_interface import CageInterface
from parllel.cages.workers.wakeup_pipe import WakeupPipe
from parllel.errors import WrongStateError
from parllel.system.counted_time import SLICE_S, counted_s
from parllel.system.processes.several import WaitSet

KeyT = TypeVar("KeyT", bound=Hashable)
# Between two questions to cages that give nothing to wait for.
_FIRST_PAUSE_S, _MAX_PAUSE_S = 20e-6, 1e-3


class PendingRows(Generic[KeyT]):
    """Rows of any cages that were started, of which `wait` takes out those that are done.

    Rows are known by keys, such as the numbers of their environments. To add and to take out a row costs the
    same however many there are. Rows of one cage belong into one of these objects at a time.
    """

    def __init__(self) -> None:
        self._rows: dict[KeyT, tuple[CageInterface, int, list[int]]] = {}
        self._silent: dict[KeyT, None] = {}  # without handles: to be asked again and again
        self._handles = WaitSet()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, key: KeyT, cage: CageInterface, group: int = 0) -> None:
        """Wait for what was started for a group of a cage.

        Raises:
            ValueError: if there is a row of that key.
            WrongStateError: if nothing was started for the group.
        """
        if key in self._rows:
            raise ValueError(f"key: expected a new one, got {key!r}, whose row is awaited already")
        numbers = [self._handles.add(handle, key) for handle in cage.awaited(group).handles()]
        self._rows[key] = cage, group, numbers
        if not numbers:
            self._silent[key] = None

    def remove(self, key: KeyT) -> None:
        """Wait for a row no more.

        Raises:
            KeyError: if there is none of that key.
        """
        _, _, numbers = self._rows.pop(key)
        for number in numbers:
            self._handles.remove(number, key)
        self._silent.pop(key, None)

    def wait(self, timeout_s: float) -> list[KeyT]:
        """Wait until a row is done; take out all that are, and return their keys, as they were added.

        A row counts as done when its worker has failed or died, which `finish_row` raises. Returns an empty
        list when the time is over; 0 or less looks once. Time in which this process was paused does not
        count.

        Raises:
            WrongStateError: if there are no rows, or one has been finished already.
        """
        if not self._rows:
            raise WrongStateError("PendingRows.wait: there are no rows; add some that were started")
        pause_s, left_s = 0.0, timeout_s
        while True:
            limit_s, began = pause_s if self._silent else SLICE_S, time.monotonic()
            slice_s = max(min(left_s, limit_s), 0.0)
            if self._silent and slice_s:
                time.sleep(slice_s)
            # Longer and longer: short waits end soon after the row, and long ones cost little.
            pause_s = min(2 * pause_s + _FIRST_PAUSE_S, _MAX_PAUSE_S)
            done = self._look(0.0 if self._silent else slice_s)
            left_s -= counted_s(began, slice_s)
            if done or left_s <= 0:
                for key in done:
                    self.remove(key)
                return done

    def _look(self, timeout_s: float) -> list[KeyT]:
        """Return the keys of rows that are done, as soon as any handle is ready."""
        ready = self._handles.ready(timeout_s)
        # All wakeup pipes first, as rows of one cage share one: a row that is done after it was asked wakes
        # again.
        for handle, _ in ready:
            if isinstance(handle, WakeupPipe):
                handle.drain()
        asked = {*self._silent, *(key for _, keys in ready for key in keys)}
        # Nothing came in a slice: in case another wait drained a pipe of ours, all are asked.
        found = set(self._done(asked or self._rows))
        return [key for key in self._rows if key in found] if len(found) > 1 else list(found)

    def _done(self, keys: Iterable[KeyT]) -> list[KeyT]:
        rows = self._rows
        return [key for key in keys if rows[key][0].awaited(rows[key][1]).done()]


def await_rows(rows: Sequence[tuple[CageInterface, int]], timeout_s: float) -> list[int]:
    """Wait once for rows of several cages, given as cage and group; return the positions of those done.

    A loop keeps its rows in `PendingRows` instead, which looks at each row once. Returns and raises what its
    `wait` does.
    """
    awaited: PendingRows[int] = PendingRows()
    for position, (cage, group) in enumerate(rows):
        awaited.add(position, cage, group)
    return awaited.wait(timeout_s)
