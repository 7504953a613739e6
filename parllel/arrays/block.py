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


if hasattr(os, "register_at_fork"):  # a forked child would go on counting as its parent does
    os.register_at_fork(after_in_child=_renew_keys)


def new_key() -> int:
    """Return a number by which other processes can know an object of this one."""
    return next(_keys)


class Block:
    """Rows of memory: padding, `full_size` rows, padding; T of them at a time are the body.

    Attributes:
        memory: [rows, ...] numpy array over all rows, for parllel's own use.
        window: which row of the full rows the body starts with; moves by T on each rotation.
        window_rows: how many rows there are from one window to the next.
        key: the number under which other processes know this block.
        writer: name of the transform that it was allocated for, or "".
        generation: counts moves of the window or of the memory; cached views compare it.
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
        """Bytes of all rows."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def storage(self) -> Storage:
        """Where the bytes live."""
        return self.arena.storage

    def _place_in(self, arena: Arena, offset: int | None = None) -> None:
        self.arena = arena
        self.offset = arena.take(self.nbytes) if offset is None else offset
        self.memory: NDArray[Any] = self._over()
        # Views that are handed out are made of this one alone, and each holds a reference to it.
        self._public: NDArray[Any] = self._over()
        # The argument of getrefcount is a reference too, here as later.
        self._own_references = sys.getrefcount(self._public)

    def _over(self) -> NDArray[Any]:
        arena = self.arena
        offset = arena.origin + self.offset
        rows: NDArray[Any] = np.ndarray(self.shape, self.dtype, arena.buffer, offset)
        return rows

    def public(self) -> NDArray[Any]:
        """Return the rows as an array to make views of that are handed out.

        Each view holds a reference to it, so `handed_out` can tell whether any is in use.
        """
        self.check_open()
        return self._public

    def row_bounds(self, place: Location) -> tuple[int, int]:
        """Return the least and the greatest row that a place shows; zeros if it is empty."""
        if isinstance(place, BasicIndex):
            return place.row_bounds()
        flat, row = place.positions(self.shape), math.prod(self.shape[1:])
        return (int(flat.min()) // row, int(flat.max()) // row) if flat.size else (0, 0)

    @property
    def handed_out(self) -> bool:
        """Whether a numpy (or torch) view of this block is still in use outside parllel."""
        return not self.closed and sys.getrefcount(self._public) > self._own_references

    def move_to(self, arena: Arena) -> None:
        """Copy the rows into `arena` and live there from now on."""
        old = self.memory
        # The key stays: it is the same block to the processes that know it.
        self._place_in(arena)
        self.memory[:] = old
        self.generation += 1

    @property
    def n_windows(self) -> int:
        """How many windows there are."""
        return self.full_size // self.length

    @property
    def window_number(self) -> int:
        """Which window is the body, from 0."""
        return self.window // self.window_rows

    def show(self, number: int) -> None:
        """Make a window the body; data stay where they are."""
        # Cached views would all be made again after each new generation, so not for nothing.
        if number != self.window_number:
            self.window = number * self.window_rows
            self.generation += 1

    def rotate(self) -> None:
        """Carry the last rows and the end padding to the front, or move on to the next window."""
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
        """Return copies of what the next `rotate` carries to the front."""
        return [rows.copy() for rows in self._edge_rows()]

    def load_edge(self, edge: Sequence[NDArray[Any]]) -> None:
        """Write what `edge` returned where the next `rotate` takes it from.

        Raises:
            ValueError: for other shapes or dtypes; nothing has changed then.
        """
        mine = self._edge_rows()
        expected = [(rows.shape, rows.dtype) for rows in mine]
        found = [(rows.shape, rows.dtype) for rows in edge]
        if expected != found:
            raise ValueError(f"edge rows: expected {expected}, got {found}")
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
        """Release the memory; views that were handed out stay valid."""
        if self.closed:
            return
        self.closed = True
        # Views keep this object, so they notice by the generation that their caches are out of date.
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
