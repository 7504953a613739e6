"""Parameters in memory that processes share, with a version, so that only what has changed is copied."""

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

    writer   publish(arrays)      differs from what is there?   copy; version += 1
    reader   load(out, seen)      version is not `seen`?        copy

    There are no locks. The writer publishes before it lets the readers work, and not while they do: in
    `start_batch` of a handler. A policy in a worker loads when the batch begins.

    It crosses the pipe of a cage, as part of a policy; both sides then hold the same memory.

    Args:
        examples: arrays of the shapes and dtypes that there will be; their values are published.
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
        """Make views of the pieces."""
        pieces = np.asarray(self._memory)
        self._version = pieces[:_VERSION_BYTES].view(np.int64)
        self._arrays = [
            pieces[start : start + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for start, shape, dtype in self._layout
        ]

    @property
    def version(self) -> int:
        """How many times something new was published."""
        return int(self._version[0])

    def publish(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Copy the arrays, if any of them differs from what was published last.

        Raises:
            ValueError: if shapes or numbers of arrays differ from the examples'.
        """
        pairs = list(zip(self._arrays, arrays, strict=True))
        for i, (mine, new) in enumerate(pairs):
            if mine.shape != new.shape:
                raise ValueError(f"parameter {i}: expected shape {mine.shape}, got {new.shape}")
        # Compared first: after a batch without an update every reader would copy for nothing.
        if not all(np.array_equal(mine, new) for mine, new in pairs):
            for mine, new in pairs:
                np.copyto(mine, new)
            # In place: a new array would not be the memory that the readers look at.
            self._version += 1

    def load(self, out: Sequence[NDArray[Any]], seen: int = NEVER) -> int:
        """Copy what was published into `out`, unless its version is `seen`; return the version."""
        version = self.version
        if version != seen:
            for mine, theirs in zip(self._arrays, out, strict=True):
                np.copyto(theirs, mine)
        return version

    def close(self) -> None:
        """Release the memory; may be called twice. Readers keep theirs."""
        # The memory goes with the last view of it, so views are dropped too; the version stays readable.
        self._version, self._arrays = self._version.copy(), []
        self._memory.close()

    def __getstate__(self) -> Any:
        return self._memory, self._layout

    def __setstate__(self, state: Any) -> None:
        self._memory, self._layout = state
        self._open()
