"""Arrays with several sides: one is written while another is read.

    block   | padding | T rows of side 0 | padding | padding | T rows of side 1 | padding |
                        ^ body, until rotate()                 ^ body afterwards

Each side has padding of its own, so no row belongs to two of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parllel.arrays.arena import Arena, Storage
from parllel.arrays.array import Array, ArrayT
from parllel.arrays.block import Block
from parllel.arrays.places import BasicIndex


class SwitchingBlock(Block):
    """Rows of memory in sides, each with its padding; one side at a time is the body: the window.

    Args: those of Block; `full_size` counts the body rows of all sides.
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
        side_rows = shape[0] + 2 * padding
        # Block adds the padding of one side to what it is given.
        rows = full_size // shape[0] * side_rows - 2 * padding
        super().__init__(shape, dtype, padding, rows, arena, storage)
        self.full_size = full_size
        self.window_rows = side_rows

    def rotate(self) -> None:
        """Change over to the next side, and carry the last rows and the end padding to its front."""
        old = self.window
        self.show((self.window_number + 1) % self.n_windows)
        # Copied: the side that is left stays whole for the process that still reads it.
        if self.padding:
            edge = 2 * self.padding
            last = old + self.length
            self.memory[self.window : self.window + edge] = self.memory[last : last + edge]


class SwitchingArray(Array):
    """`T` rows of `B` cells with two sides; `rotate()` changes over from one to the other.

    What is read from one side is not disturbed by writing to the other. Views made before `rotate()` stay
    on their side.

    Args:
        shape, dtype, padding, arena: as for Array.
        full_size: body rows of all sides together, a multiple of T; default 2 T, which is two sides.

    Raises:
        ValueError: as Array, or for a full_size of one side only.

    Each process that shares the memory keeps the number of the side that is the body itself. One of them
    rotates and moves the edge rows; the others set `side` to its new number, which moves no data.
    """

    __slots__ = ()
    _block_class = SwitchingBlock
    _least_windows = 2

    @property
    def n_sides(self) -> int:
        """How many sides there are."""
        return self._block.n_windows

    @property
    def side(self) -> int:
        """Which side is the body, from 0; set it to follow another process, which has rotated."""
        return self._block.window_number

    @side.setter
    def side(self, side: int) -> None:
        self._check_root("side")
        if not 0 <= side < self.n_sides:
            raise ValueError(f"side: expected 0 to {self.n_sides - 1}, got {side}")
        # No edge rows are moved: the process that rotated has moved them, in memory that both see.
        self._block.show(side)

    @property
    def full(self: ArrayT) -> ArrayT:
        """The body rows of all sides, padding left out."""
        block = self._block
        # With padding between the sides the rows are not evenly spaced, so there is no numpy view of them.
        everything = BasicIndex(tuple(range(n) for n in block.shape))
        if not block.padding:
            return self._of(block, everything)
        starts = block.padding + block.window_rows * np.arange(block.n_windows)
        rows = (starts[:, np.newaxis] + np.arange(block.length)).ravel()
        return self._of(block, everything.index(rows))

    def _shifted(self: ArrayT, by: int) -> ArrayT:
        shifted = super()._shifted(by)  # type: ignore[misc]
        block = self._block
        # Sides follow each other in memory: to the block a row beyond one is simply a row of the other.
        ends = [*block.row_bounds(self.place), *block.row_bounds(shifted.place)]
        if min(ends) // block.window_rows != max(ends) // block.window_rows:
            where = "before the first" if by < 0 else "after the last"
            raise IndexError(
                f"there is no row {where} one of {self!r} on its side: it has no padding there"
            )
        return shifted  # type: ignore[no-any-return]


class SwitchingRotatingArray(SwitchingArray):
    """A SwitchingArray whose sides have `padding` rows at either end (default 1).

    `rotate()` carries the last rows and the end padding of one side to the front of the other, so that what
    followed one batch starts the next.
    """

    __slots__ = ()
    default_padding = 1


class SwitchingSharedMemoryArray(SwitchingArray):
    """A SwitchingArray in anonymous shared memory, handed to processes when they start."""

    __slots__ = ()
    storage_kind = "shared"


class SwitchingRotatingSharedMemoryArray(SwitchingRotatingArray):
    """A SwitchingRotatingArray in anonymous shared memory, handed to processes when they start."""

    __slots__ = ()
    storage_kind = "shared"


class SwitchingManagedMemoryArray(SwitchingArray):
    """A SwitchingArray in shared memory that can be sent to a running process."""

    __slots__ = ()
    storage_kind = "managed"


class SwitchingRotatingManagedMemoryArray(SwitchingRotatingArray):
    """A SwitchingRotatingArray in shared memory that can be sent to a running process."""

    __slots__ = ()
    storage_kind = "managed"
