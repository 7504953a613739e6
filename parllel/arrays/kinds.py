"""The named pairs of storage and layout."""

from __future__ import annotations

from parllel.arrays.arena import Storage
from parllel.arrays.array import Array


class RotatingArray(Array):
    """An Array with `padding` rows on either side of the body (default 1).

    `array[array.first - 1]` and `array[array.last + 1]` reach into the padding. `rotate()` carries the
    last rows and the end padding to the front, so that what followed one batch starts the next.
    """

    __slots__ = ()
    default_padding = 1


class SharedMemoryArray(Array):
    """An Array in anonymous shared memory, handed to processes when they start."""

    __slots__ = ()
    storage_kind = "shared"


class RotatingSharedMemoryArray(RotatingArray):
    """A RotatingArray in anonymous shared memory, handed to processes when they start."""

    __slots__ = ()
    storage_kind = "shared"


class ManagedMemoryArray(Array):
    """An Array in shared memory that can be sent to a running process."""

    __slots__ = ()
    storage_kind = "managed"


class RotatingManagedMemoryArray(RotatingArray):
    """A RotatingArray in shared memory that can be sent to a running process."""

    __slots__ = ()
    storage_kind = "managed"


def array_class(storage: Storage, *, rotating: bool) -> type[Array]:
    """Return the class for a storage and a layout."""
    plain: dict[Storage, type[Array]] = {
        "local": Array,
        "shared": SharedMemoryArray,
        "managed": ManagedMemoryArray,
    }
    padded: dict[Storage, type[Array]] = {
        "local": RotatingArray,
        "shared": RotatingSharedMemoryArray,
        "managed": RotatingManagedMemoryArray,
    }
    classes = padded if rotating else plain
    if storage not in classes:
        raise ValueError(f"storage: expected one of {tuple(classes)}, got {storage!r}")
    return classes[storage]
