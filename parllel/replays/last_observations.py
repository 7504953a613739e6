"""True last observations of the episodes that were cut, kept for as long as their rows are stored.

    link [R, B]     ... -1 -1  2 -1 -1 -1  0 ...      a slot where an episode was cut
    tables [slots]   o  -  o  -                       one per leaf of the observation; slots are reused

Few steps have one, so this takes a small part of the memory of a second field of observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.replays.cell_words import as_words

_FIRST_SIZE = 64


class LastObservations:
    """Tables of observations, by slot.

    Args:
        cells: an example cell for each leaf of the observation, of the right shape and dtype.

    Attributes:
        tables: [slots, ...], one per leaf. They are replaced when they grow.
        words: the same memory as words, see `as_words`.
    """

    def __init__(self, cells: Sequence[NDArray[Any]]) -> None:
        self.tables: list[NDArray[Any]] = [np.zeros((0, *cell.shape), cell.dtype) for cell in cells]
        self.words: list[NDArray[Any]] = []
        self._free: list[int] = []
        self._resize(_FIRST_SIZE)

    @property
    def size(self) -> int:
        """Number of slots."""
        return len(self.tables[0])

    @property
    def n_used(self) -> int:
        """Number of slots in use."""
        return self.size - len(self._free)

    def take(self, n: int) -> NDArray[np.intp]:
        """Return `n` free slots, after making more if necessary."""
        while len(self._free) < n:
            self._resize(2 * self.size)
        taken = [self._free.pop() for _ in range(n)]
        return np.array(taken, np.intp)

    def free(self, slots: NDArray[Any]) -> None:
        """Let slots be used again."""
        self._free.extend(slots.tolist())

    def _resize(self, size: int) -> None:
        old = self.size
        self.tables = [_resized(table, size) for table in self.tables]
        self.words = [as_words(table, 1) for table in self.tables]
        # The lowest slots are taken first.
        self._free = [*range(size - 1, old - 1, -1), *self._free]

    def state(self) -> dict[str, Any]:
        """Return the tables and the free slots."""
        return {"tables": list(self.tables), "free": np.array(self._free, np.int64)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if cells have another shape or dtype.
        """
        saved = state["tables"]
        cells = [(table.shape[1:], table.dtype) for table in self.tables]
        found = [(table.shape[1:], table.dtype) for table in saved]
        if cells != found:
            raise ValueError(f"last observations: expected cells {cells}, got {found}")
        self.tables = [np.array(table) for table in saved]
        self.words = [as_words(table, 1) for table in self.tables]
        self._free = [int(slot) for slot in state["free"]]


def _resized(table: NDArray[Any], size: int) -> NDArray[Any]:
    larger: NDArray[Any] = np.zeros((size, *table.shape[1:]), table.dtype)
    larger[: len(table)] = table
    return larger
