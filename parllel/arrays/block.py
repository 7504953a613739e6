"""The memory of an array and all of its views."""

from __future__ import annotations

import itertools
import math
import os
import secrets
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.arena import Arena, Storage, aligned
from parllel.arrays.places import BasicIndex, Location
from parllel.errors import ClosedError

# Keys are unique among the processes that exchange arrays: a random prefix, then a counter.
_keys = itertools.count(secrets.randbits(31) << 32)


def _renew_keys() -> None:
    global _keys
    _keys = itertools.count(secrets.randbits(31) << 32)


if hasattr(os, "register_at_fork"):  # parent and forked child would count through the same keys
    os.register_at_fork(after_in_child=_renew_keys)


def new_key() -> int:
    """Return a number that identifies an object of this process to other processes."""
    return next(_keys)


class Block:
    """Rows of memory: padding, `full_size` rows, padding. The body is a window of T of these rows.

    Attributes:
        memory: [rows, ...] numpy array of all rows, for internal use.
        window: index of the body's first row among the full rows; advances by T with each rotation.
        window_rows: number of rows from one window to the next.
        key: identifies this block in other processes.
        writer: name of the transform that the block was allocated for, or "".
        generation: number of times the window or the memory has moved, used to invalidate cached
            views.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        padding: int,
        full_size: int,
        arena: Arena | None,
        storage: Storage,
    ) -> None:
        padding, full_size = int(padding), int(full_size)  # these may be numpy's
        self.length = shape[0]
        self.padding = padding
        self.full_size = full_size
        self.window = 0
        self.window_rows = self.length
        self.key = new_key()
        self.writer = ""
        self.generation = 0
        self.shape = (full_size + 2 * padding, *shape[1:])
        self.dtype = dtype
        self.closed = False
        self._place_in(arena or Arena(aligned(self.nbytes), storage))

    @property
    def nbytes(self) -> int:
        """Size of all rows in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def storage(self) -> Storage:
        """Kind of memory."""
        return self.arena.storage

    def _place_in(self, arena: Arena, offset: int | None = None) -> None:
        self.arena = arena
        self.offset = arena.take(self.nbytes) if offset is None else offset
        self.memory: NDArray[Any] = self._over()
        # Views handed out are made from this array only, and each holds a reference to it.
        self._public: NDArray[Any] = self._over()
        # getrefcount counts its own argument, here and in `handed_out`.
        self._own_references = sys.getrefcount(self._public)

    def _over(self) -> NDArray[Any]:
        arena = self.arena
        offset = arena.origin + self.offset
        rows: NDArray[Any] = np.ndarray(self.shape, self.dtype, arena.buffer, offset)
        return rows

    def public(self) -> NDArray[Any]:
        """Return the numpy array on which all views outside parllel are based.

        Each of these views holds a reference to it, by which `handed_out` detects whether any view
        is in use.
        """
        self.check_open()
        return self._public

    def row_bounds(self, place: Location) -> tuple[int, int]:
        """Return the first and the last row of a place, or zeros if the place is empty."""
        if isinstance(place, BasicIndex):
            return place.row_bounds()
        flat, row = place.positions(self.shape), math.prod(self.shape[1:])
        return (int(flat.min()) // row, int(flat.max()) // row) if flat.size else (0, 0)

    @property
    def handed_out(self) -> bool:
        """Whether a numpy (or torch) view of this block is still in use outside parllel."""
        return not self.closed and sys.getrefcount(self._public) > self._own_references

    def move_to(self, arena: Arena) -> None:
        """Move the rows to `arena`."""
        old = self.memory
        # The key is kept: for other processes this is still the same block.
        self._place_in(arena)
        self.memory[:] = old
        self.generation += 1

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        return self.full_size // self.length

    @property
    def window_number(self) -> int:
        """Index of the window that is the body."""
        return self.window // self.window_rows

    def show(self, number: int) -> None:
        """Make a window the body. No data are moved."""
        # A new generation invalidates all cached views, so only when the window changes.
        if number != self.window_number:
            self.window = number * self.window_rows
            self.generation += 1

    def rotate(self) -> None:
        """Copy the last rows and the end padding to the front, or advance to the next window."""
        p = self.padding
        if self.window + self.length < self.full_size:
            self.window += self.length
            self.generation += 1
            return
        self.reset()
        if p:
            # Source and destination overlap if padding equals the length; numpy buffers then.
            self.memory[: 2 * p] = self.memory[self.full_size : self.full_size + 2 * p]

    def edge(self) -> list[NDArray[Any]]:
        """Return copies of the rows that the next `rotate` carries to the front."""
        return [rows.copy() for rows in self._edge_rows()]

    def load_edge(self, edge: Sequence[NDArray[Any]]) -> None:
        """Write the rows returned by `edge` back, for the next `rotate` to carry.

        Raises:
            ValueError: if shapes or dtypes differ; nothing is written then.
        """
        mine = self._edge_rows()
        expected = [(rows.shape, rows.dtype) for rows in mine]
        found = [(rows.shape, rows.dtype) for rows in edge]
        if expected != found:
            raise ValueError(
                f"edge rows: expected arrays of shapes and dtypes {expected}, got {found}"
            )
        for rows, saved in zip(mine, edge, strict=True):
            rows[...] = saved

    def _edge_rows(self) -> list[NDArray[Any]]:
        last = self.window + self.length
        return [self.memory[last : last + 2 * self.padding]] if self.padding else []

    def reset(self) -> None:
        """Move the body back to the first rows."""
        if self.window:
            self.window = 0
            self.generation += 1

    def check_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self.closed:
            raise ClosedError("the array was used after close()")

    def close(self) -> None:
        """Release the memory. Existing numpy views stay valid."""
        if self.closed:
            return
        self.closed = True
        # Views hold this object and see by its generation that their caches are stale.
        self.generation += 1
        del self.memory, self._public, self.arena

    def __getstate__(self) -> dict[str, Any]:
        self.check_open()
        state = self.__dict__.copy()
        del state["memory"], state["_public"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._place_in(self.arena, self.offset)
        if self.arena.storage == "local":
            self.key = new_key()  # local memory arrives as a copy: another block
