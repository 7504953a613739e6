"""Parameters in shared memory, with a version so that readers copy only new ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.arena import aligned
from parllel.arrays.kinds import ManagedMemoryArray

_VERSION_BYTES = 8
NEVER = -1  # the version of a reader that has loaded nothing yet


class SharedParameters:
    """Arrays that one process publishes and others load.

    writer   publish(arrays)      differs from last published?  copy; version += 1
    reader   load(out, seen)      version is not `seen`?        copy

    There are no locks. The writer publishes in `start_batch` of a handler, before readers start and never
    while they work. A policy in a worker loads when the batch begins.

    A SharedParameters object is sent through the pipe of a cage as part of a policy. Both processes
    then share its memory.

    Args:
        examples: arrays of the shapes and dtypes to publish. They are also the first published
            values.
    """

    def __init__(self, examples: Sequence[NDArray[Any]]) -> None:
        ends = np.cumsum([aligned(_VERSION_BYTES), *(aligned(x.nbytes) for x in examples)])
        self._layout = [
            (int(start), x.shape, x.dtype) for start, x in zip(ends, examples, strict=False)
        ]
        self._memory = ManagedMemoryArray((int(ends[-1]),), np.uint8)
        self._open()
        self.publish(examples)

    def _open(self) -> None:
        """Create the views of the memory."""
        pieces = np.asarray(self._memory)
        self._version = pieces[:_VERSION_BYTES].view(np.int64)
        self._arrays = [
            pieces[start : start + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for start, shape, dtype in self._layout
        ]

    @property
    def version(self) -> int:
        """Number of times that new values were published."""
        return int(self._version[0])

    def publish(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Copy the arrays if any of them differs from the last published values.

        Raises:
            ValueError: if the number or the shapes of the arrays differ from the examples.
        """
        pairs = list(zip(self._arrays, arrays, strict=True))
        for i, (mine, new) in enumerate(pairs):
            if mine.shape != new.shape:
                raise ValueError(f"parameter {i}: expected shape {mine.shape}, got {new.shape}")
        # Compared first: after a batch without an update, all readers would copy needlessly.
        if not all(np.array_equal(mine, new) for mine, new in pairs):
            for mine, new in pairs:
                np.copyto(mine, new)
            # In place: a new array would not be in the shared memory.
            self._version += 1

    def load(self, out: Sequence[NDArray[Any]], seen: int = NEVER) -> int:
        """Copy the published values into `out` unless their version is `seen`. Return the version."""
        version = self.version
        if version != seen:
            for mine, theirs in zip(self._arrays, out, strict=True):
                np.copyto(theirs, mine)
        return version

    def close(self) -> None:
        """Release this process's memory; readers keep theirs. Idempotent."""
        # Memory is freed with the last view, so views are dropped. The version stays readable.
        self._version, self._arrays = self._version.copy(), []
        self._memory.close()

    def __getstate__(self) -> Any:
        return self._memory, self._layout

    def __setstate__(self, state: Any) -> None:
        self._memory, self._layout = state
        self._open()
