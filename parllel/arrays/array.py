"""Array: rows of data for many environments, indexed lazily.

Indexing an Array never copies and never touches memory: it computes a place, and numpy accesses the elements
only when they are read or written. Writing into any view writes to the base memory, also through integer
lists and masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from parllel.arrays.arena import Arena, Storage
from parllel.arrays.block import Block
from parllel.arrays.interchange import Interchange, refuse_numbers, refuse_others_than_numbers
from parllel.arrays.layout_checks import check_layout, check_shape
from parllel.arrays.places import BasicIndex, Location, ScatteredIndex, as_index, same_place

ArrayT = TypeVar("ArrayT", bound="Array")


# More methods than usual: an Array replaces a numpy array, so it has the attributes that numpy users expect
# (shape, ndim, size, nbytes, len, iteration, ...). Subclasses override only a few of them.
class Array(Interchange):
    """An array of `T` rows with `B` cells each, in local memory.

    Args:
        shape: `(T, B, *feature)`; only the leading dimension T has a meaning.
        dtype: any numpy dtype except object.
        padding: number of rows before the first row and after the last; only for rotating classes.
        full_size: total number of rows, a multiple of T; defaults to T. If it is larger, the body
            is a window of T rows that advances with each rotation, as in a replay buffer.
        arena: memory to allocate from; defaults to a new arena.

    Raises:
        ValueError: for an empty shape, a dimension below one, an object dtype, negative padding,
            padding longer than T, or a `full_size` that is not a multiple of T.
        InsufficientMemoryError: if there is not enough memory.

    Row numbers are positions relative to the body: `array[-1]` is the row before the first one, which
    exists only with padding. The last row is `array[array.last]`.
    """

    storage_kind: ClassVar[Storage] = "local"
    default_padding: ClassVar[int] = 0
    _block_class: ClassVar[type[Block]] = Block
    _least_windows: ClassVar[int] = 1

    # Arrays are equal if they show the same place, and the place of a whole array changes with each rotation.
    __hash__ = None  # type: ignore[assignment]
    __slots__ = (
        "__weakref__",
        "_block",
        "_body",
        "_generation",
        "_length",
        "_numpy",
        "_place",
        "_root_place",
    )

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        *,
        padding: int | None = None,
        full_size: int | None = None,
        arena: Arena | None = None,
    ) -> None:
        self._allocate(shape, dtype, padding, full_size, arena, self.storage_kind)

    def _allocate(
        self,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        padding: int | None,
        full_size: int | None,
        arena: Arena | None,
        storage: Storage,
    ) -> None:
        padding = self.default_padding if padding is None else padding
        name, dtype, windows = type(self).__name__, np.dtype(dtype), self._least_windows
        check_shape(name, shape)
        full_size = windows * shape[0] if full_size is None else full_size
        rotates = self.default_padding > 0
        check_layout(name, shape, dtype, padding, full_size, rotates=rotates, windows=windows)
        storage = storage if arena is None else arena.storage
        sizes = tuple(int(n) for n in shape)  # these may be numpy's
        self._block = self._block_class(sizes, dtype, padding, full_size, arena, storage)
        self._place: Location | None = None  # None: the body, wherever the window is
        self._forget()

    @classmethod
    def _of(cls: type[ArrayT], block: Block, place: Location | None) -> ArrayT:
        # Bypasses `__init__`, which allocates memory.
        array = cls.__new__(cls)
        array._block = block
        array._place = place
        array._body = array._numpy = array._root_place = None
        array._generation = block.generation
        return array

    def _forget(self) -> None:
        """Drop cached views after the memory or the window moved."""
        self._numpy: NDArray[Any] | None = None
        self._root_place: BasicIndex | None = None
        self._generation = self._block.generation
        # Fast path of writing: a numpy view of the body. Whole arrays only; views have none.
        self._body: NDArray[Any] | None = None
        if self._place is None and not self._block.closed:
            self._length = self._block.length
            self._body = self.place.view(self._block.memory)  # type: ignore[union-attr]

    # ------------------------------------------------------------------ what it is

    @property
    def place(self) -> Location:
        """The position of the elements in the block."""
        if self._place is not None:
            return self._place
        if self._generation != self._block.generation:
            self._forget()
        if self._root_place is None:
            block = self._block
            first = block.padding + block.window
            rest = tuple(range(n) for n in block.shape[1:])
            rows = range(first, first + block.length)
            self._root_place = BasicIndex((rows, *rest), margin=block.padding)
        return self._root_place

    @property
    def block(self) -> Block:
        """The memory shared with all views."""
        return self._block

    @property
    def is_view(self) -> bool:
        """Whether this was made by indexing another Array."""
        return self._place is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, as numpy would report it."""
        return self.place.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        return self._block.dtype

    @property
    def nbytes(self) -> int:
        """Size of the elements of this view in bytes, without padding."""
        return self.size * self.dtype.itemsize

    @property
    def storage(self) -> Storage:
        """Kind of memory: "local", "shared" or "managed"."""
        self._block.check_open()
        return self._block.storage

    @property
    def padding(self) -> int:
        """Number of accessible rows before the first row and after the last; 0 for views."""
        return self.place.margin

    @property
    def full_size(self) -> int:
        """Number of rows that rotations cycle through."""
        return self._block.full_size

    @property
    def first(self) -> int:
        """Number of the first row of the body."""
        return 0

    @property
    def last(self) -> int:
        """Number of the last row of the body."""
        return len(self) - 1

    @property
    def full(self: ArrayT) -> ArrayT:
        """All rows that rotations cycle through, without padding."""
        block = self._block
        rest = tuple(range(n) for n in block.shape[1:])
        rows = range(block.padding, block.padding + block.full_size)
        return self._of(block, BasicIndex((rows, *rest)))

    @property
    def indices(self) -> tuple[Any, ...]:
        """Position in the body: an int or slice per dimension, or an array of flat positions."""
        place, block = self.place, self._block
        start = block.padding + block.window
        if isinstance(place, BasicIndex):
            return tuple(as_index(dim) for dim in place.shift(-start).dims)
        return (place.positions(block.shape) - start * math.prod(block.shape[1:]),)

    # ------------------------------------------------------------------ moving in time

    @property
    def previous(self: ArrayT) -> ArrayT:
        """The same cells one row earlier. Raises IndexError if such rows do not exist."""
        return self._shifted(-1)

    @property
    def next(self: ArrayT) -> ArrayT:
        """The same cells one row later. Raises IndexError if such rows do not exist."""
        return self._shifted(1)

    def _shifted(self: ArrayT, by: int) -> ArrayT:
        place, shape = self.place, self._block.shape
        shifted: Location
        if isinstance(place, BasicIndex):
            shifted = place.shift(by)
        else:
            flat = place.positions(shape) + by * math.prod(shape[1:])
            shifted = ScatteredIndex(flat, place.has_time)
        # Check against the block, not the body: padding rows and other batches of a replay are valid.
        low, high = self._block.row_bounds(shifted)
        if low < 0 or high >= shape[0]:
            side = "before the first" if by < 0 else "after the last"
            raise IndexError(f"{self!r} has no row {side} one, because it has no padding there")
        return self._of(self._block, shifted)

    def rotate(self) -> None:
        """Prepare for the next batch: copy the edge rows to the front, or advance the window.

        Existing views keep their position.
        """
        self._check_root("rotate")
        self._block.rotate()

    def edge(self) -> list[NDArray[Any]]:
        """Return copies of the rows that the next `rotate` carries to the front; empty without padding.

        Between two batches, a checkpoint needs only these rows.
        """
        self._check_root("edge")
        return self._block.edge()

    def load_edge(self, edge: Sequence[NDArray[Any]]) -> None:
        """Restore the rows returned by `edge`. Raises ValueError if their shapes differ."""
        self._check_root("load_edge")
        self._block.load_edge(edge)

    def reset(self) -> None:
        """Return to the first window, as if `rotate` had never been called. Data are kept."""
        self._check_root("reset")
        self._block.reset()

    def _check_root(self, method: str) -> None:
        self._block.check_open()
        if self._place is not None:
            raise ValueError(
                f"{method}(): expected a whole array, got a view; call it on the array itself"
            )

    # ------------------------------------------------------------------ reading and writing

    def __getitem__(self: ArrayT, location: Any) -> ArrayT:
        place = self.place
        if isinstance(place, BasicIndex):
            return self._of(self._block, place.index(location))
        return self._of(self._block, place.index(location, self._block.shape))

    def __setitem__(self, location: Any, value: ArrayLike | Array) -> None:
        # numpy would write NaN.
        if value is None:
            raise TypeError(
                "Array: expected numbers to write, got None; make the field itself None to leave it empty"
            )
        kind: Any = type(value)
        if kind in (list, tuple) or (kind is np.ndarray and np.asarray(value).dtype.hasobject):
            refuse_others_than_numbers(value)
        elif isinstance(value, Array):
            value._block.check_open()
        if self._generation != self._block.generation:
            self._forget()
        # Most writes address a row of the body by an int, which means the same to numpy. Negative rows and
        # padding rows do not, and are resolved to a place first.
        body = self._body
        if body is not None:
            row = location[0] if type(location) is tuple and location else location
            if type(row) is int and 0 <= row < self._length:
                body[location] = value
                return
        self[location]._write(value)

    def _write(self, value: Any) -> None:
        self._block.check_open()
        if isinstance(value, Array):
            value = value._read()  # not through `public`: this view does not outlive the call
        memory, place = self._block.memory, self.place
        if isinstance(place, BasicIndex):
            self._internal()[...] = value
        elif isinstance(place, ScatteredIndex):
            memory.reshape(-1)[place.flat] = value
        else:
            place.base.view(memory)[place.location] = value

    def _internal(self) -> NDArray[Any]:
        """Return a numpy view for internal use; it is not counted as handed out."""
        if self._generation != self._block.generation:
            self._forget()
        if self._numpy is None:
            place = self.place
            assert isinstance(place, BasicIndex)
            self._numpy = place.view(self._block.memory)
        return self._numpy

    def _read(self) -> NDArray[Any]:
        self._block.check_open()
        return _elements(self._block.memory, self.place)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return a numpy view where numpy indexing would return one, and a copy otherwise."""
        place = self.place
        is_copy = not isinstance(place, BasicIndex)
        # Through `public`, so that the block counts the view and is not moved while it is in use.
        if dtype is None and not copy and isinstance(place, BasicIndex):
            return place.view(self._block.public())
        viewed = _elements(self._block.public(), place)
        wanted = viewed.dtype if dtype is None else np.dtype(dtype)
        if copy is False and (is_copy or wanted != viewed.dtype):
            raise ValueError(f"{self!r} cannot be read as {wanted} without a copy")
        return viewed.astype(wanted, copy=bool(copy) and not is_copy)

    def numpy_at(self, location: Any) -> NDArray[Any]:
        """Return `np.asarray(self[location])`, with a fast path for `[t, b]`."""
        block = self._block
        if self._place is None and type(location) is tuple and len(location) == 2:
            row, column = location
            if type(row) is int and 0 <= row < block.length and type(column) in (int, slice):
                # The ellipsis makes a single element a 0-d view instead of a scalar.
                return block.public()[row + block.padding + block.window, column, ...]
        return np.asarray(self[location])

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("an array without dimensions has no len()")
        return shape[0]

    def __iter__(self: ArrayT) -> Iterator[ArrayT]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Return whether both show the same place of the same buffer. Contents are not compared.

        Raises TypeError for numbers, where a comparison of contents is meant.
        """
        if not isinstance(other, Array):
            refuse_numbers(other, "== with numbers")
            return NotImplemented
        mine, theirs = self._block, other._block
        return mine.key == theirs.key and same_place(self.place, other.place, mine.shape)

    def __repr__(self) -> str:
        what = "view of " if self.is_view else ""
        if self._block.closed:
            return f"<closed {type(self).__name__}>"
        return f"<{what}{type(self).__name__} {self.shape} {self.dtype}, {self.storage}>"

    # ------------------------------------------------------------------ life

    def close(self) -> None:
        """Release the memory. Later use of the array or its views raises ClosedError."""
        self._block.close()
        # These views would keep the memory alive as long as the closed array exists.
        self._numpy = self._body = None

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self._block, self._place)


def _rebuild(cls: type[Array], block: Block, place: Location | None) -> Array:
    array = cls._of(block, place)
    # `_of` makes no view of the body, as views have none; a whole array needs it.
    array._forget()
    return array


def _elements(memory: NDArray[Any], place: Location) -> NDArray[Any]:
    """Return what lies at a place: a view where indexing in numpy would give one, a copy elsewhere."""
    if isinstance(place, BasicIndex):
        return place.view(memory)
    if isinstance(place, ScatteredIndex):
        return np.asarray(memory.reshape(-1)[place.flat])
    return np.asarray(place.base.view(memory)[place.location])
