"""Waiting for the rows of several cages at once.

cage: handles         pipes and processes --------------> poll: sleeps until any of them is ready
wakeup pipe of a cage <---------------------------------- drained, before its rows are checked
cage: done            <---------------------------------- checked for the rows whose handles were ready
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
# Pauses between polls of cages that offer no handles.
_FIRST_PAUSE_S, _MAX_PAUSE_S = 20e-6, 1e-3


class PendingRows(Generic[KeyT]):
    """Rows in progress of several cages. `wait` removes and returns those that are done.

    Rows are identified by keys, such as the numbers of their environments. Adding and removing a row takes
    constant time. At any time, all rows of a cage must be in the same PendingRows object.
    """

    def __init__(self) -> None:
        self._rows: dict[KeyT, tuple[CageInterface, int, list[int]]] = {}
        self._silent: dict[KeyT, None] = {}  # rows without handles, which must be polled
        self._handles = WaitSet()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, key: KeyT, cage: CageInterface, group: int = 0) -> None:
        """Add the row in progress of a cage's group.

        Raises:
            ValueError: if there is already a row with this key.
            WrongStateError: if nothing was started for the group.
        """
        if key in self._rows:
            raise ValueError(f"key: expected a new key, got {key!r}, which already has a row")
        numbers = [self._handles.add(handle, key) for handle in cage.awaited(group).handles()]
        self._rows[key] = cage, group, numbers
        if not numbers:
            self._silent[key] = None

    def remove(self, key: KeyT) -> None:
        """Remove a row without waiting for it.

        Raises:
            KeyError: if there is no row with this key.
        """
        _, _, numbers = self._rows.pop(key)
        for number in numbers:
            self._handles.remove(number, key)
        self._silent.pop(key, None)

    def wait(self, timeout_s: float) -> list[KeyT]:
        """Wait until a row is done. Remove all finished rows and return their keys in order of addition.

        A row whose worker has failed or died is done too; `finish_row` raises its error. Returns an empty
        list after `timeout_s`; with 0 or less it only polls. Time in which this process was paused does not
        count.

        Raises:
            WrongStateError: if there are no rows, or one was already finished.
        """
        if not self._rows:
            raise WrongStateError(
                "PendingRows.wait: there are no rows to wait for; add started rows first"
            )
        pause_s, left_s = 0.0, timeout_s
        while True:
            # A single row without handles makes the whole wait a poll: nothing would
            # interrupt a sleep for it.
            limit_s, began = pause_s if self._silent else SLICE_S, time.monotonic()
            slice_s = max(min(left_s, limit_s), 0.0)
            if self._silent and slice_s:
                time.sleep(slice_s)
            # Growing pauses: short waits end soon after the row, and long ones use little processor time.
            pause_s = min(2 * pause_s + _FIRST_PAUSE_S, _MAX_PAUSE_S)
            done = self._look(0.0 if self._silent else slice_s)
            left_s -= counted_s(began, slice_s)
            if done or left_s <= 0:
                for key in done:
                    self.remove(key)
                return done

    def _look(self, timeout_s: float) -> list[KeyT]:
        """Wait until any handle is ready, and return the keys of the rows that are done."""
        ready = self._handles.ready(timeout_s)
        # All wakeup pipes are drained before any row is checked: rows of one cage share a pipe, and a row
        # that is done after its check wakes this process again.
        for handle, _ in ready:
            if isinstance(handle, WakeupPipe):
                handle.drain()
        asked = {*self._silent, *(key for _, keys in ready for key in keys)}
        # No handle was ready in this slice: another wait may have drained a shared pipe, so check all rows.
        found = set(self._done(asked or self._rows))
        return [key for key in self._rows if key in found] if len(found) > 1 else list(found)

    def _done(self, keys: Iterable[KeyT]) -> list[KeyT]:
        # A ready handle proves nothing: it may be due to another group's row, or to an earlier one.
        rows = self._rows
        return [key for key in keys if rows[key][0].awaited(rows[key][1]).done()]


def await_rows(rows: Sequence[tuple[CageInterface, int]], timeout_s: float) -> list[int]:
    """Wait for any of several rows, given as (cage, group); return the positions of the finished ones.

    In a loop, use `PendingRows`, which registers each row only once. Returns and raises as
    `PendingRows.wait` does.
    """
    awaited: PendingRows[int] = PendingRows()
    for position, (cage, group) in enumerate(rows):
        awaited.add(position, cage, group)
    return awaited.wait(timeout_s)
