"""Places: which elements of a block of memory a view shows.

A place is computed without touching memory. Three kinds cover all of numpy's indexing:

    Basic       an int or a range per dimension: a numpy view
    Advanced    lists, arrays or masks applied once to a basic place: numpy reads and writes it directly
    Scattered   everything else: the flat index of every element

The leading dimension of a block is time. Row numbers are positions relative to the body: rows -1 and T
are its neighbours, and negative rows are not counted from the end.
"""

from __future__ import annotations

import operator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Dims: TypeAlias = "tuple[int | range, ...]"


class BasicIndex:
    """A basic index into a block: an int (dimension dropped) or a range (dimension kept) for each dimension.

    `margin` rows before and after the time range can be reached by row number. Views made by
    slicing have no margin.
    """

    __slots__ = ("dims", "margin")

    def __init__(self, dims: Dims, margin: int = 0) -> None:
        self.dims = dims
        self.margin = margin

    @property
    def has_time(self) -> bool:
        """Whether the first dimension still counts rows."""
        return isinstance(self.dims[0], range)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the kept dimensions."""
        return tuple(len(dim) for dim in self.dims if isinstance(dim, range))

    def view(self, memory: NDArray[Any]) -> NDArray[Any]:
        """Return the elements as a view of the block's memory."""
        # The ellipsis makes a single element a 0-d view, which can be written.
        return memory[tuple(map(as_index, self.dims)) + (...,)]  # noqa: RUF005

    def index(self, location: Any) -> BasicIndex | AdvancedIndex:
        """Return the place that an index selects. Raises IndexError if it does not exist."""
        quick = self._ints_and_slices(location if type(location) is tuple else (location,))
        if quick is not None:
            return BasicIndex(quick)
        location = _expand(location, len(self.shape))
        if any(not isinstance(item, (int, slice)) for item in location):
            return self._advanced(location)
        items = iter(location)
        dims: list[int | range] = []
        for axis, dim in enumerate(self.dims):
            if not isinstance(dim, range):
                dims.append(dim)
            elif axis == 0:
                dims.append(self._rows(dim, next(items)))
            else:
                dims.append(_select(dim, next(items), axis))
        return BasicIndex(tuple(dims))

    def _ints_and_slices(self, items: tuple[Any, ...]) -> Dims | None:
        """Fast path for ints and slices; None for indices that need the general path."""
        dims: list[int | range] = []
        used = 0
        for axis, dim in enumerate(self.dims):
            if used == len(items) or type(dim) is int:
                dims.append(dim)
                continue
            item = items[used]
            used += 1
            # Exact types: bool is a subclass of int, but not a valid index.
            kind = type(item)
            assert isinstance(dim, range)
            if kind is slice:
                dims.append(dim[item] if axis else self._rows(dim, item))
            # Along time a negative number is a padding row, which takes the general path.
            elif kind is int and (0 if axis == 0 else -len(dim)) <= item < len(dim):
                dims.append(dim[item])
            else:
                return None
        return tuple(dims) if used == len(items) else None

    def _rows(self, rows: range, item: int | slice) -> int | range:
        if isinstance(item, slice):
            picked = row_range(item, len(rows), self.margin)
            first, step = rows.start, rows.step
            return range(
                first + picked.start * step, first + picked.stop * step, picked.step * step
            )
        check_row(item, len(rows), self.margin)
        return rows.start + item * rows.step

    def _advanced(self, location: tuple[Any, ...]) -> AdvancedIndex:
        rows, *rest = self.dims
        margin = self.margin if isinstance(rows, range) else 0
        location = _for_numpy(location, self.shape, self.has_time, margin)
        if isinstance(rows, range):
            # numpy indexes from the first row of the base, so the base starts with the margin.
            by = margin * rows.step
            rows = range(rows.start - by, rows.stop + by, rows.step)
        has_time = self.has_time and _leads_with_time(location)
        return AdvancedIndex(BasicIndex((rows, *rest)), location, has_time)

    def shift(self, rows: int) -> BasicIndex:
        """Return the place `rows` rows later, which may lie outside the block."""
        return BasicIndex((_shift(self.dims[0], rows), *self.dims[1:]))

    def row_bounds(self) -> tuple[int, int]:
        """Return the first and the last row in the block, or zeros if there are no rows."""
        rows = self.dims[0]
        if isinstance(rows, int):
            return rows, rows
        return (min(rows[0], rows[-1]), max(rows[0], rows[-1])) if rows else (0, 0)

    def positions(self, memory_shape: tuple[int, ...]) -> NDArray[np.intp]:
        """Return the flat position in the block of every element."""
        everything = tuple([slice(None)] * len(self.shape))
        return AdvancedIndex(self, everything, self.has_time).positions(memory_shape)

    def __reduce__(self) -> Any:
        return BasicIndex, (self.dims, self.margin)


class AdvancedIndex:
    """Integer arrays (and slices) applied once to a basic place.

    Raises:
        IndexError: if the arrays do not broadcast together, or an index is out of bounds.
    """

    __slots__ = ("base", "has_time", "location", "shape")

    margin = 0

    def __init__(self, base: BasicIndex, location: tuple[Any, ...], has_time: bool) -> None:
        self.base = base
        self.location = location
        self.has_time = has_time
        # Computed eagerly: a bad index fails where it is written, not where the view is read.
        self.shape = _selected_shape(base.shape, location)

    def index(self, location: Any, memory_shape: tuple[int, ...]) -> ScatteredIndex:
        """Return the place that an index selects. Raises IndexError if it does not exist."""
        everything = ScatteredIndex(self.positions(memory_shape), self.has_time)
        return everything.index(location, memory_shape)

    def positions(self, memory_shape: tuple[int, ...]) -> NDArray[np.intp]:
        """Return the flat position in the block of every element."""
        shape = self.base.shape
        strides = np.cumprod([1, *memory_shape[:0:-1]])[::-1]
        total: Any = np.intp(0)
        axis = 0
        for dim, stride in zip(self.base.dims, strides, strict=True):
            if isinstance(dim, int):
                total = total + dim * stride
                continue
            along = np.arange(dim.start, dim.stop, dim.step, dtype=np.intp) * stride
            along = along.reshape(-1, *[1] * (len(shape) - axis - 1))
            total = total + np.broadcast_to(along, shape)[self.location]
            axis += 1
        return np.asarray(total, np.intp)

    def __reduce__(self) -> Any:
        return AdvancedIndex, (self.base, self.location, self.has_time)


class ScatteredIndex:
    """A place given by the flat position of each element in the block."""

    __slots__ = ("flat", "has_time")

    margin = 0

    def __init__(self, flat: NDArray[np.intp], has_time: bool) -> None:
        self.flat = flat
        self.has_time = has_time

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the positions."""
        return self.flat.shape

    def index(self, location: Any, memory_shape: tuple[int, ...]) -> ScatteredIndex:
        """Return the place that an index selects. Raises IndexError if it does not exist."""
        shape = self.flat.shape
        location = _for_numpy(_expand(location, len(shape)), shape, self.has_time, 0)
        has_time = self.has_time and _leads_with_time(location)
        # numpy returns a scalar for a single position.
        return ScatteredIndex(np.asarray(self.flat[location]), has_time)

    def positions(self, memory_shape: tuple[int, ...]) -> NDArray[np.intp]:
        """Return the positions themselves."""
        return self.flat

    def __reduce__(self) -> Any:
        return ScatteredIndex, (self.flat, self.has_time)


Location: TypeAlias = "BasicIndex | AdvancedIndex | ScatteredIndex"


def same_place(a: Location, b: Location, memory_shape: tuple[int, ...]) -> bool:
    """Return whether two places contain the same elements in the same arrangement."""
    # Avoids `positions`, which has an entry per element: a batch may have millions.
    if isinstance(a, BasicIndex) and isinstance(b, BasicIndex):
        return a.dims == b.dims
    if a.shape != b.shape:
        return False
    return bool(np.array_equal(a.positions(memory_shape), b.positions(memory_shape)))


def check_row(row: int, length: int, margin: int) -> None:
    """Raise IndexError unless `row` is in the body or its margin."""
    if -margin <= row < length + margin:
        return
    reach = f"rows {-margin} to {length + margin - 1} exist"
    if row < 0:
        raise IndexError(
            f"row {row} lies before the first row: {reach}. Negative numbers do not count from the "
            "end; use a[a.last] for the last row"
        )
    raise IndexError(f"row {row} lies after the last row: {reach}")


def row_range(rows: slice, length: int, margin: int) -> range:
    """Return the row numbers selected by a slice whose ends are positions.

    The far end may lie in the margin. Beyond the margin it means the end of the body, so that
    `a[0:100]` has the same rows with and without a margin.

    Raises:
        IndexError: if an end lies before the first row that exists.
    """
    step = 1 if rows.step is None else operator.index(rows.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    ends = [None if end is None else operator.index(end) for end in (rows.start, rows.stop)]
    for end in ends:
        if end is not None and end < -margin:
            check_row(end, length, margin)
    start, stop = ends
    # As in numpy, slices may exceed the end; but never the first row that exists.
    if step > 0:
        end_of_rows = length + margin
        start = 0 if start is None else min(start, end_of_rows)
        stop = length if stop is None or stop > end_of_rows else stop
    else:
        last = length + margin - 1
        start = length - 1 if start is None or start > last else start
        stop = -1 if stop is None else min(stop, last)
    return range(start, stop, step)


def _expand(location: Any, ndim: int) -> tuple[Any, ...]:
    """Return one item per dimension; an ellipsis and missing items become full slices."""
    items = location if isinstance(location, tuple) else (location,)
    items = tuple(_normalise(item) for item in items)
    used = sum(_width(item) for item in items if item is not Ellipsis)
    if used > ndim:
        raise IndexError(f"too many indices: the array has {ndim} dimensions, {used} were indexed")
    gaps = sum(item is Ellipsis for item in items)
    if gaps > 1:
        raise IndexError("an index can have only one ellipsis ('...')")
    fill = (slice(None),) * (ndim - used)
    if not gaps:
        return items + fill
    at = next(i for i, item in enumerate(items) if item is Ellipsis)
    beside = items[at - 1 : at + 2 : 2] if at else ()
    apart = len(beside) == 2 and not any(isinstance(item, slice) for item in beside)
    if not fill and apart and any(isinstance(item, np.ndarray) for item in items):
        # numpy would let such dots move the dimensions of lists to the front
        raise IndexError("'...' covers no dimension here; leave it out")
    return items[:at] + fill + items[at + 1 :]


def _normalise(item: Any) -> Any:
    if item is None:
        raise IndexError("new axes are not supported here; use np.asarray(array)[..., None]")
    if item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (bool, np.bool_)):
        raise IndexError("a single bool is not an index; use a mask of the array's shape")
    if isinstance(item, (int, np.integer)):
        return int(item)
    array = np.asarray(item)
    if array.dtype == bool:
        return array if array.ndim else _normalise(bool(array))
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise IndexError(f"expected int, slice, '...', int list or bool mask, got {item!r}")
    # A copy, in case the caller changes the array; and a wide type, so that uint8 row 255 + 1 fits.
    return array.astype(np.intp) if array.ndim else int(array)


def _width(item: Any) -> int:
    """Return the number of dimensions an item consumes; a mask consumes its own."""
    return item.ndim if isinstance(item, np.ndarray) and item.dtype == bool else 1


def _for_numpy(
    location: tuple[Any, ...], shape: tuple[int, ...], has_time: bool, margin: int
) -> tuple[Any, ...]:
    """Convert masks to integers, and count rows from the first one of the margin."""
    location = _masks_to_integers(location, shape)
    if not has_time:
        return location
    return (_rows_from(location[0], shape[0], margin), *location[1:])


def _leads_with_time(location: tuple[Any, ...]) -> bool:
    """Return whether the leading dimension of numpy's result is still rows.

    It is for a single list that selects rows. Pairs of lists select elements, and lists that are separated by
    slices move to the front.
    """
    first, *rest = location
    lists = any(isinstance(item, np.ndarray) for item in rest)
    if not isinstance(first, slice):
        return isinstance(first, np.ndarray) and not lists
    taken = [axis for axis, item in enumerate(location) if not isinstance(item, slice)]
    return not lists or taken[-1] - taken[0] == len(taken) - 1


def _selected_shape(shape: tuple[int, ...], location: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the shape of numpy's result, without evaluating whole trailing dimensions."""
    end = len(location)
    while end and isinstance(location[end - 1], slice):
        end -= 1
    # numpy applies its own rules, to a single byte broadcast with strides of 0.
    front = np.broadcast_to(np.uint8(0), shape[:end])[location[:end]].shape
    rest = zip(location[end:], shape[end:], strict=True)
    return (*front, *[len(range(n)[item]) for item, n in rest])


def _masks_to_integers(location: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Replace masks by the equivalent integer arrays."""
    items: list[Any] = []
    axis = 0
    for item in location:
        if isinstance(item, np.ndarray) and item.dtype == bool:
            expected = shape[axis : axis + item.ndim]
            if item.shape != expected:
                raise IndexError(f"mask of shape {item.shape} does not fit dimensions {expected}")
            items.extend(item.nonzero())
        else:
            items.append(item)
        axis += _width(item)
    return tuple(items)


def _rows_from(item: Any, length: int, margin: int) -> Any:
    """Convert a row index to count from the first row of the margin."""
    if isinstance(item, slice):
        return as_index(_shift(row_range(item, length, margin), margin))
    if isinstance(item, int):
        check_row(item, length, margin)
        return item + margin
    if item.size:
        check_row(int(item.min()), length, margin)
        check_row(int(item.max()), length, margin)
    return item + margin


def _select(dim: range, item: int | slice, axis: int) -> int | range:
    try:
        return dim[item]
    except IndexError:
        raise IndexError(
            f"index {item} is out of bounds for dimension {axis} with size {len(dim)}"
        ) from None


def _shift(dim: int | range, by: int) -> Any:
    if isinstance(dim, int):
        return dim + by
    return range(dim.start + by, dim.stop + by, dim.step)


def as_index(dim: int | range) -> int | slice:
    """Return the int or slice that selects `dim` in numpy."""
    if isinstance(dim, int):
        return dim
    if not dim:
        return slice(0, 0, 1)
    stop = dim[-1] + (1 if dim.step > 0 else -1)
    # For a negative step down to 0 the end would be -1, which numpy counts from the end.
    return slice(dim[0], None if dim.step < 0 and stop == -1 else stop, dim.step)
