"""Array classes for each combination of storage and layout."""

from __future__ import annotations

from parllel.arrays.arena import Storage
from parllel.arrays.array import Array
from parllel.arrays.switching import (
    SwitchingArray,
    SwitchingManagedMemoryArray,
    SwitchingRotatingArray,
    SwitchingRotatingManagedMemoryArray,
    SwitchingRotatingSharedMemoryArray,
    SwitchingSharedMemoryArray,
)


class RotatingArray(Array):
    """An Array with `padding` rows (1 by default) on either side of the body.

    `array[array.first - 1]` and `array[array.last + 1]` are padding rows. `rotate()` copies the last rows
    and the end padding to the front, so that the next batch continues where this one ended.
    """

    # Otherwise every view would have a `__dict__`, which costs time and memory.
    __slots__ = ()
    default_padding = 1


class SharedMemoryArray(Array):
    """An Array in anonymous shared memory, passed to processes when they start."""

    __slots__ = ()
    storage_kind = "shared"


class RotatingSharedMemoryArray(RotatingArray):
    """A RotatingArray in anonymous shared memory, passed to processes when they start."""

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


# (switching, rotating): the class for each storage
_CLASSES: dict[tuple[bool, bool], dict[Storage, type[Array]]] = {
    (False, False): {
        "local": Array,
        "shared": SharedMemoryArray,
        "managed": ManagedMemoryArray,
    },
    (False, True): {
        "local": RotatingArray,
        "shared": RotatingSharedMemoryArray,
        "managed": RotatingManagedMemoryArray,
    },
    (True, False): {
        "local": SwitchingArray,
        "shared": SwitchingSharedMemoryArray,
        "managed": SwitchingManagedMemoryArray,
    },
    (True, True): {
        "local": SwitchingRotatingArray,
        "shared": SwitchingRotatingSharedMemoryArray,
        "managed": SwitchingRotatingManagedMemoryArray,
    },
}


def array_class(storage: Storage, *, rotating: bool, switching: bool = False) -> type[Array]:
    """Return the Array class for a storage and a layout."""
    classes = _CLASSES[switching, rotating]
    if storage not in classes:
        raise ValueError(f"storage: expected one of {tuple(classes)}, got {storage!r}")
    return classes[storage]
