"""The memory of a LazyFramesArray: each frame once, and how far back the stack of each cell reaches.

    newest   [B, k, *frame]      the stack written last in each column: the agent's input
    frames   [rows, B, *frame]   the last frame of each stack
    reach    [rows, B] uint8     how many earlier frames belong to the stack, and what replaces the rest

    frames of a column   ... x x y A B C D E      an episode ended with y, the next begins with A
    reach (k = 4)                3 0 1 2 3 3
    stack of C: A A B C if the wrapper repeats the first frame, 0 A B C if it pads with zeros

Stacks reach k - 1 rows before their own row, so the memory has k - 1 additional rows in front.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parllel.arrays.arena import Arena, aligned
from parllel.arrays.block import Block

MAX_FRAMES = 128
ZEROS = 128  # bit of `reach`: the stack is padded with zeros; otherwise its first frame is repeated
REACH = ZEROS - 1


def stored_nbytes(shape: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes needed to store stacks `[rows, B, k, *frame]`, including bookkeeping."""
    return sum(aligned(n) for n in _part_nbytes(shape, itemsize))


def _part_nbytes(shape: tuple[int, ...], itemsize: int) -> tuple[int, int, int]:
    rows, B, k, *frame = shape
    frame_nbytes = math.prod(frame) * itemsize
    cells = (rows + k - 1) * B
    return B * k * frame_nbytes, cells * frame_nbytes, cells


class FrameBlock(Block):
    """A Block that has the shape of the stacks but stores single frames.

    Rows are counted from the block's first row, as in places.

    Attributes:
        newest: [B, k, words], the stack written last in each column.
        frames: [k - 1 + rows, B, words].
        reach: [k - 1 + rows, B] uint8.
    """

    newest: NDArray[Any]
    frames: NDArray[Any]
    reach: NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """Size of all parts in bytes."""
        return stored_nbytes(self.shape, self.dtype.itemsize)

    @property
    def depth(self) -> int:
        """Number of frames in a stack."""
        return self.shape[2]

    def _over(self) -> NDArray[Any]:
        arena = self.arena
        every: NDArray[Any] = np.ndarray(
            (self.nbytes,), np.uint8, arena.buffer, arena.origin + self.offset
        )
        return every

    def _place_in(self, arena: Arena, offset: int | None = None) -> None:
        super()._place_in(arena, offset)
        rows, B, k, *frame = self.shape
        frame_nbytes = math.prod(frame) * self.dtype.itemsize
        # Frames are compared and copied bit by bit, in the widest words that divide their size.
        size = math.gcd(frame_nbytes, 8)
        # Integer words: a float NaN would differ from itself.
        self._word = np.dtype(f"u{size}")
        rest = frame_nbytes // size
        newest, frames, reach = self._parts(self.memory)
        self.newest = newest.view(self._word).reshape(B, k, rest)
        self.frames = frames.view(self._word).reshape(rows + k - 1, B, rest)
        self.reach = reach.reshape(rows + k - 1, B)

    def _parts(self, memory: NDArray[Any]) -> list[NDArray[Any]]:
        parts, start = [], 0
        for n in _part_nbytes(self.shape, self.dtype.itemsize):
            parts.append(memory[start : start + n])
            start += aligned(n)
        return parts

    # ------------------------------------------------------------------ writing

    def write(self, row: int, column: int, stack: ArrayLike) -> None:
        """Store a stack, or a value that numpy can broadcast to one (0 clears the cell).

        Rows must be written in time order. A stack is read back bit for bit. It must continue the
        frames of the previous rows, or begin with a repeated frame or with zeros, as after a reset.
        The first row of a block without padding accepts any stack and stores its earlier frames in
        the rows before.

        Raises:
            ValueError: for any other stack.
        """
        self.check_open()
        k = self.depth
        words = self._words_of(stack)
        at = row + k - 1
        before = self.frames[row:at, column]
        reach = k - 1
        # Comparing bytes takes half the time of numpy's comparison for images, a tenth for short vectors.
        if words[:-1].tobytes() != before.tobytes():
            found = _reach(words, before)
            if found is not None:
                reach = found
            elif row == self.padding:
                before[...] = words[:-1]
            else:
                raise self._unlike(row, column)
        self.frames[at, column] = words[-1]
        self.reach[at, column] = reach
        self.newest[column] = words

    def _words_of(self, stack: Any) -> NDArray[Any]:
        shape = self.shape[2:]
        if type(stack) is not np.ndarray or stack.dtype != self.dtype or stack.shape != shape:
            stack = np.broadcast_to(np.asarray(stack, self.dtype), shape)
        if not stack.flags.c_contiguous:
            stack = np.ascontiguousarray(stack)
        words: NDArray[Any] = stack.reshape(shape[0], -1).view(self._word)
        return words

    def _unlike(self, row: int, column: int) -> ValueError:
        return ValueError(
            f"LazyFramesArray: row {row - self.padding - self.window}, column {column}: the stack "
            "neither continues the frames in the rows before nor begins with a repeated frame or zeros; "
            "wrappers that step within reset() go below FrameStackObservation, or store whole stacks "
            "(frames=0)"
        )

    # ------------------------------------------------------------------ reading

    def staged(self, columns: slice) -> NDArray[Any]:
        """Return a view [n, k, *frame] of the latest stacks of `columns`."""
        # Through `public`, so that the block counts it as handed out.
        newest = self._parts(self.public())[0]
        return newest.view(self.dtype).reshape(self.shape[1:])[columns]

    def gather(
        self, rows: NDArray[np.int64], columns: NDArray[np.int64], out: NDArray[Any]
    ) -> None:
        """Write the stacks of N cells into `out` [N, k, *frame], which must be C-contiguous."""
        from parllel.arrays import compiled  # imports numba

        self.check_open()
        n, k = len(rows), self.depth
        if n:
            compiled.gather(
                self.frames.view(np.uint8),
                self.reach,
                np.ascontiguousarray(rows, np.int64) + (k - 1),
                np.ascontiguousarray(columns, np.int64),
                out.reshape(n, k, -1).view(np.uint8),
            )

    def elements(self, flat: NDArray[np.intp]) -> NDArray[Any]:
        """Return single elements, given their flat positions in the stacks [rows, B, k, *frame]."""
        self.check_open()
        _, B, k, *frame = self.shape
        size = math.prod(frame)
        cells, within = np.divmod(flat, k * size)
        rows, columns = np.divmod(cells, B)
        rows = rows + (k - 1)
        number, element = np.divmod(within, size)
        back = k - 1 - number
        reach = self.reach[rows, columns].astype(np.intp)
        source = rows - np.minimum(back, reach & REACH)
        frames = self.frames.view(self.dtype)
        found = np.asarray(frames[source, columns, element])
        absent = (back > reach & REACH) & (reach >= ZEROS)
        return np.where(absent, self.dtype.type(0), found)

    # ------------------------------------------------------------------ life

    def rotate(self) -> None:
        """Copy the last frames and the end padding to the front, or advance to the next window."""
        if self.window + self.length < self.full_size:
            super().rotate()
            return
        self.reset()
        # Including the frames that the first stacks of the next batch reach back to.
        carried = 2 * self.padding + self.depth - 1
        for part in (self.frames, self.reach):
            part[:carried] = part[self.full_size : self.full_size + carried]

    def _edge_rows(self) -> list[NDArray[Any]]:
        last = self.window + self.length
        carried = 2 * self.padding + self.depth - 1
        # The newest stacks are the agent's input for the row after the batch.
        return [*(part[last : last + carried] for part in (self.frames, self.reach)), self.newest]

    def close(self) -> None:
        """Release the memory. Existing numpy views stay valid."""
        if not self.closed:
            super().close()
            del self.newest, self.frames, self.reach

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["newest"], state["frames"], state["reach"]
        return state


def _reach(words: NDArray[Any], before: NDArray[Any]) -> int | None:
    """Return the `reach` of a stack of a young episode, or None if the stack does not fit.

    words: the stack, [k, n].  before: the frames in the k - 1 rows before it.
    """
    k = len(words)
    # The shortest reach that fits: a stack of equal frames fits several.
    for reach in range(k):
        first = words[k - 1 - reach]
        if reach and not (first == before[k - 1 - reach]).all():
            return None
        rest = words[: k - 1 - reach]
        if (rest == first).all():
            return reach
        if not rest.any():
            return reach | ZEROS
    return None
