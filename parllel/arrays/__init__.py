"""Arrays: numpy-like views of memory that may be shared between processes."""

from parllel.arrays.arena import Storage
from parllel.arrays.array import Array
from parllel.arrays.kinds import (
    ManagedMemoryArray,
    RotatingArray,
    RotatingManagedMemoryArray,
    RotatingSharedMemoryArray,
    SharedMemoryArray,
)
from parllel.arrays.lazy_frames import LazyFramesArray

__all__ = [
    "Array",
    "LazyFramesArray",
    "ManagedMemoryArray",
    "RotatingArray",
    "RotatingManagedMemoryArray",
    "RotatingSharedMemoryArray",
    "SharedMemoryArray",
    "Storage",
]
