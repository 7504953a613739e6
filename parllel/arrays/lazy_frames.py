"""Arrays of frame stacks that store each frame once and rebuild stacks when they are read.

    written    array[t, b] = stack       compared with the frames before; the last one is stored
    read       np.asarray(array[...])    rebuilt from single frames, by a compiled loop
    acted on   staged(columns)           the stacks written last, kept whole: nothing is rebuilt

`FrameBlock` is the memory; this module maps places to its rows and columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from parllel.arrays.arena import STORAGES, Arena, Storage
from parllel.arrays.array import Array
from parllel.arrays.frame_block import MAX_FRAMES, FrameBlock
from parllel.arrays.layout_checks import check_shape
from parllel.arrays.places import AdvancedIndex, BasicIndex, ScatteredIndex, as_index, check_row


class LazyFramesArray(Array):
    """An array of frame stacks, `[T, B, k, *frame]`, that stores each frame once.

    Write whole stacks, as gymnasium's FrameStackObservation returns them. Only the last frame of each is
    stored, with the number of earlier frames that belong to the stack. Stacks are read back exactly as they
    were written, including at episode starts, whether the wrapper repeats the first frame or pads with zeros.

    Args:
        shape: `(T, B, k, *frame)`, stacks of k frames.
        dtype: any numpy dtype except object.
        padding: number of rows before the first row and after the last; defaults to 1.
        full_size: total number of rows, a multiple of T, as for `Array`.
        arena: memory to allocate from; defaults to a new arena.
        storage: "local", "shared" or "managed"; ignored if an arena is given.

    Raises:
        ValueError: for the reasons given in `Array`, a shape without k, k above 128, or an unknown
            storage.

    Unlike with other Arrays, reading always copies, even for a slice. To write, assign to the array
    itself: `array[t, b] = stack`. Rows must be written in time order and as whole stacks.

    In an array with many batches, such as a replay buffer, the stacks of the k - 1 rows after the
    newest row include frames that have since been overwritten. Exclude these rows when sampling
    from `full`.
    """

    __slots__ = ()
    default_padding = 1
    _block_class = FrameBlock

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        *,
        padding: int | None = None,
        full_size: int | None = None,
        arena: Arena | None = None,
        storage: Storage = "local",
    ) -> None:
        name = type(self).__name__
        check_shape(name, shape)
        if len(shape) < 3 or shape[2] > MAX_FRAMES:
            raise ValueError(
                f"{name}: shape: expected (T, B, k, *frame) with k of 1 to {MAX_FRAMES}, got {shape}"
            )
        if storage not in STORAGES:
            raise ValueError(f"{name}: storage: expected one of {STORAGES}, got {storage!r}")
        self._allocate(shape, dtype, padding, full_size, arena, storage)

    def _forget(self) -> None:
        # No view of the body: stacks are not stored, so numpy could not write to one.
        self._numpy = self._body = self._root_place = None
        self._generation = self._block.generation

    @property
    def _memory(self) -> FrameBlock:
        block = self._block
        assert isinstance(block, FrameBlock)
        block.check_open()
        return block

    @property
    def frames(self) -> int:
        """Number of frames in a stack."""
        return self._memory.depth

    # ------------------------------------------------------------------ reading

    def _read(self) -> NDArray[Any]:
        memory, place = self._memory, self.place
        found = self._cells()
        # Reading element by element is slow but works for any index; most reads take whole stacks.
        if found is None:
            return memory.elements(place.positions(memory.shape))
        cells, features = found
        rows, columns = np.divmod(cells.reshape(-1), memory.shape[1])
        out = np.empty((cells.size, *memory.shape[2:]), memory.dtype)
        memory.gather(rows, columns, out)
        stacks = out.reshape(*cells.shape, *memory.shape[2:])
        # Indices within the stacks are applied afterwards; most of them select whole stacks anyway.
        for items in features:
            whole = (slice(None),) * cells.ndim
            stacks = np.asarray(stacks[whole + items])
        return stacks

    def _cells(self) -> tuple[NDArray[np.intp], list[tuple[int | slice, ...]]] | None:
        """Return the flat indices of the cells, and the indices to apply in turn to their stacks.

        None if the place selects by lists within the stacks.
        """
        place, B = self.place, self._block.shape[1]
        if isinstance(place, ScatteredIndex):
            return None
        base = place if isinstance(place, BasicIndex) else place.base
        rows, columns = (np.asarray(dim, np.intp) for dim in base.dims[:2])
        cells = np.asarray(np.add.outer(rows * B, columns))
        features = [tuple(as_index(dim) for dim in base.dims[2:])]
        if isinstance(place, AdvancedIndex):
            inner = place.location[cells.ndim :]
            if not all(isinstance(item, slice) for item in inner):
                return None
            cells = np.asarray(cells[place.location[: cells.ndim]])
            features.append(inner)
        return cells, features

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the stacks, rebuilt: always a copy."""
        if copy is False:
            raise ValueError(
                f"{self!r} cannot be read without a copy, because its stacks are not stored"
            )
        stacks = self._read()
        return stacks if dtype is None else stacks.astype(dtype, copy=False)

    def numpy_at(self, location: Any) -> NDArray[Any]:
        """Return `np.asarray(self[location])`."""
        # The fast path of Array reads elements from memory, which holds single frames here.
        return np.asarray(self[location])

    def gather(
        self, rows: ArrayLike, columns: ArrayLike, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return the stacks of N cells, `[N, k, *frame]`, equal to `self[rows, columns]`.

        rows, columns: N ints each; rows may be in the padding, columns must not be negative.
        out: C-contiguous array to write to, with the result's shape and this array's dtype.

        Raises:
            ValueError: if this is a view of single rows, columns or frames, or for an unsuitable argument.
            IndexError: for a row or column that does not exist.
        """
        memory, place = self._memory, self.place
        if not isinstance(place, BasicIndex) or not _holds_cells(place, memory.shape):
            raise ValueError(f"gather: expected an array of whole rows and columns, got {self!r}")
        where = [_positions(name, x) for name, x in (("rows", rows), ("columns", columns))]
        if where[0].shape != where[1].shape:
            raise ValueError(
                f"gather: expected as many columns as rows, got {len(where[0])} rows and "
                f"{len(where[1])} columns"
            )
        shape = (len(where[0]), *memory.shape[2:])
        if out is None:
            out = np.empty(shape, memory.dtype)
        # Contiguous, as it is filled by a loop over bytes.
        elif out.shape != shape or out.dtype != memory.dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"gather: out: expected a contiguous array, {memory.dtype} {shape}, got "
                f"{out.dtype} {out.shape}"
            )
        time, across = place.dims[:2]
        assert isinstance(time, range)
        assert isinstance(across, range)
        # The compiled loop does not check bounds: a wrong index would read foreign memory.
        if shape[0]:
            for row in (where[0].min(), where[0].max()):
                check_row(int(row), len(time), place.margin)
            _check_columns(where[1], len(across))
        at = time.start + where[0] * time.step, across.start + where[1] * across.step
        memory.gather(*at, out)
        return out

    def staged(self, columns: slice = slice(None)) -> NDArray[Any]:
        """Return a view `[n, k, *frame]` of the latest stacks of `columns`, the input of an agent.

        The same view is reused for all rows. It shows the most recently written row.
        """
        return self._memory.staged(columns)

    # ------------------------------------------------------------------ writing

    def _write(self, value: Any) -> None:
        memory = self._memory
        found = self._cells()
        if found is None or not _whole(found[1], memory.shape[2:]):
            raise ValueError(
                f"{type(self).__name__}: only whole stacks can be written, got {self!r}"
            )
        if isinstance(value, Array):
            value = value._read()
        cells, cell_shape = found[0], memory.shape[2:]
        values = np.broadcast_to(np.asarray(value), (*cells.shape, *cell_shape))
        values = values.reshape(cells.size, *cell_shape)
        rows, columns = np.divmod(cells.reshape(-1), memory.shape[1])
        # In time order: each stack is compared with the frames before it.
        for i in np.argsort(rows, kind="stable").tolist():
            memory.write(int(rows[i]), int(columns[i]), values[i])

    def writers(self, t: int, columns: slice, number: int | None = None) -> FrameRow:
        """Return a writer for row `t` of `columns`, which is faster than indexing the array.

        number: number of the batch; defaults to the current batch.
        """
        memory = self._memory
        check_row(t, len(self), self.padding)
        # The row of a given batch keeps its position when the array switches to another batch.
        window = memory.window if number is None else number * memory.window_rows
        return FrameRow(memory, memory.padding + window + t, columns.start)


class FrameRow:
    """Writes one row of some columns: `row[i] = stack`. `row[i, ...]` returns the writer of a cell.

    `row[...] = stacks` writes one stack to each of the first columns.
    """

    __slots__ = ("_first", "_memory", "_row")

    def __init__(self, memory: FrameBlock, row: int, first: int) -> None:
        self._memory, self._row, self._first = memory, row, first

    @property
    def place(self) -> tuple[int, int]:
        """The row in memory, and the first column."""
        return self._row, self._first

    def __setitem__(self, i: Any, stack: Any) -> None:
        if i is not ...:
            self._memory.write(self._row, self._first + i, stack)
            return
        for column, one in enumerate(stack, self._first):
            self._memory.write(self._row, column, one)

    # Same indexing as a numpy row, so that cages write to both with the same code.
    def __getitem__(self, location: tuple[int, Any]) -> FrameCell:
        return FrameCell(self._memory, self._row, self._first + location[0])


class FrameCell:
    """Writes one cell: `cell[...] = stack`."""

    __slots__ = ("_column", "_memory", "_row")

    def __init__(self, memory: FrameBlock, row: int, column: int) -> None:
        self._memory, self._row, self._column = memory, row, column

    def __setitem__(self, location: Any, stack: Any) -> None:
        self._memory.write(self._row, self._column, stack)


def _holds_cells(place: BasicIndex, shape: tuple[int, ...]) -> bool:
    """Return whether a place is a rectangle of cells."""
    rest = tuple(range(n) for n in shape[2:])
    return all(isinstance(dim, range) for dim in place.dims[:2]) and place.dims[2:] == rest


def _whole(features: list[tuple[int | slice, ...]], shape: tuple[int, ...]) -> bool:
    """Return whether indices, applied in turn, select whole stacks unchanged."""
    return all(
        len(items) == len(shape)
        and all(
            isinstance(item, slice) and range(n)[item] == range(n)
            for item, n in zip(items, shape, strict=True)
        )
        for items in features
    )


def _positions(name: str, numbers: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(numbers)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"gather: {name}: expected [N] ints, got {array.dtype} {array.shape}")
    # Signed: numpy promotes uint64 and an int to float.
    return array.astype(np.int64)


def _check_columns(columns: NDArray[np.int64], n: int) -> None:
    low, high = int(columns.min()), int(columns.max())
    if low < 0 or high >= n:
        raise IndexError(f"gather: expected columns from 0 to {n - 1}, got {low} to {high}")
