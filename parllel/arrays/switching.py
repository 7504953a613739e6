"""Arrays with several sides (double buffers): one is written while another is read.

    block   | padding | T rows of side 0 | padding | padding | T rows of side 1 | padding |
                        ^ body, until rotate()                 ^ body afterwards

Each side has its own padding, so no row belongs to two sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parllel.arrays.arena import Arena, Storage
from parllel.arrays.array import Array, ArrayT
from parllel.arrays.block import Block
from parllel.arrays.places import BasicIndex


class SwitchingBlock(Block):
    """Rows of memory divided into sides, each with its own padding. The body is always one of the sides.

    The arguments are those of Block; `full_size` counts the body rows of all sides.
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
        # Block adds the padding of one side itself.
        rows = full_size // shape[0] * side_rows - 2 * padding
        super().__init__(shape, dtype, padding, rows, arena, storage)
        self.full_size = full_size
        self.window_rows = side_rows

    def rotate(self) -> None:
        """Switch to the next side, and copy the last rows and the end padding to its front."""
        old = self.window
        self.show((self.window_number + 1) % self.n_windows)
        # Copied, not moved: another process may still read the side that is left.
        if self.padding:
            edge = 2 * self.padding
            last = old + self.length
            self.memory[self.window : self.window + edge] = self.memory[last : last + edge]


class SwitchingArray(Array):
    """An array of `T` rows with `B` cells each, with two sides. `rotate()` switches to the other side.

    Writing to one side does not disturb readers of the other. Views made before `rotate()` stay on their
    side.

    Args:
        shape, dtype, padding, arena: as for Array.
        full_size: total number of body rows on all sides, a multiple of T; defaults to 2 T, for two
            sides.

    Raises:
        ValueError: for the reasons given in Array, or if `full_size` allows for only one side.

    Each process that shares the memory keeps its own side number. Only one process calls `rotate`,
    which copies the edge rows. The others set `side` to the new number, which moves no data.
    """

    __slots__ = ()
    _block_class = SwitchingBlock
    _least_windows = 2

    @property
    def n_sides(self) -> int:
        """Number of sides."""
        return self._block.n_windows

    @property
    def side(self) -> int:
        """Index of the side that is the body. Set it after another process has rotated."""
        return self._block.window_number

    @side.setter
    def side(self, side: int) -> None:
        self._check_root("side")
        if not 0 <= side < self.n_sides:
            raise ValueError(f"side: expected 0 to {self.n_sides - 1}, got {side}")
        # Edge rows are not copied here: the process that rotated has done so in the shared memory.
        self._block.show(side)

    @property
    def full(self: ArrayT) -> ArrayT:
        """The body rows of all sides, without padding."""
        block = self._block
        # With padding between the sides, rows are not evenly spaced, so numpy has no view of them.
        everything = BasicIndex(tuple(range(n) for n in block.shape))
        if not block.padding:
            return self._of(block, everything)
        starts = block.padding + block.window_rows * np.arange(block.n_windows)
        rows = (starts[:, np.newaxis] + np.arange(block.length)).ravel()
        return self._of(block, everything.index(rows))

    def _shifted(self: ArrayT, by: int) -> ArrayT:
        shifted = super()._shifted(by)  # type: ignore[misc]
        block = self._block
        # Sides are adjacent in memory: for the block, a row beyond one side is a row of the other.
        ends = [*block.row_bounds(self.place), *block.row_bounds(shifted.place)]
        if min(ends) // block.window_rows != max(ends) // block.window_rows:
            where = "before the first" if by < 0 else "after the last"
            raise IndexError(
                f"{self!r} has no row {where} one on its side, because it has no padding there"
            )
        return shifted  # type: ignore[no-any-return]


class SwitchingRotatingArray(SwitchingArray):
    """A SwitchingArray whose sides have `padding` rows (1 by default) at either end.

    `rotate()` copies the last rows and the end padding of one side to the front of the other, so that the
    next batch continues where this one ended.
    """

    __slots__ = ()
    default_padding = 1


class SwitchingSharedMemoryArray(SwitchingArray):
    """A SwitchingArray in anonymous shared memory, passed to processes when they start."""

    __slots__ = ()
    storage_kind = "shared"


class SwitchingRotatingSharedMemoryArray(SwitchingRotatingArray):
    """A SwitchingRotatingArray in anonymous shared memory, passed to processes when they start."""

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
