"""Arrays: numpy-like views of memory that may be shared between processes."""

from parllel.arrays.arena import STORAGES, Arena, Storage, aligned, available_memory
from parllel.arrays.array import Array
from parllel.arrays.batch_views import BatchViews
from parllel.arrays.block import Block, new_key
from parllel.arrays.frame_block import stored_nbytes
from parllel.arrays.kinds import (
    ManagedMemoryArray,
    RotatingArray,
    RotatingManagedMemoryArray,
    RotatingSharedMemoryArray,
    SharedMemoryArray,
    array_class,
)
from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.arrays.places import Basic, Place
from parllel.arrays.switching import (
    SwitchingArray,
    SwitchingManagedMemoryArray,
    SwitchingRotatingArray,
    SwitchingRotatingManagedMemoryArray,
    SwitchingRotatingSharedMemoryArray,
    SwitchingSharedMemoryArray,
)

__all__ = [
    "STORAGES",
    "Arena",
    "Array",
    "Basic",
    "BatchViews",
    "Block",
    "LazyFramesArray",
    "ManagedMemoryArray",
    "Place",
    "RotatingArray",
    "RotatingManagedMemoryArray",
    "RotatingSharedMemoryArray",
    "SharedMemoryArray",
    "Storage",
    "SwitchingArray",
    "SwitchingManagedMemoryArray",
    "SwitchingRotatingArray",
    "SwitchingRotatingManagedMemoryArray",
    "SwitchingRotatingSharedMemoryArray",
    "SwitchingSharedMemoryArray",
    "aligned",
    "array_class",
    "available_memory",
    "new_key",
    "stored_nbytes",
]
