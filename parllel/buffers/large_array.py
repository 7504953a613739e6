"""Arrays of a state that are too large to exist twice, such as the rows of a replay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 24  # bytes that are handed over at a time


class LargeArray:
    """An array in a state that is written from, and read into, the memory where it is used.

    `save_state` writes it without a copy. `load_state` leaves the elements in the file, so the part
    that returned it in its `state()` reads them into its own memory:

        def state(self):
            return {"rows": LargeArray(self.rows)}

        def load_state(self, state):
            state["rows"].read_into(self.rows)

    Args:
        array: a C-contiguous array, which is not copied.

    Raises:
        ValueError: if the array is not contiguous.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        if not array.flags.c_contiguous:
            raise ValueError("LargeArray: expected a contiguous array, which needs no copy")
        self._bytes = array.reshape(-1).view(np.uint8)
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def pieces(self) -> Iterator[memoryview | bytes]:
        """Yield the bytes of all elements, in C order, without a copy of the whole."""
        for begin in range(0, self.nbytes, _CHUNK):
            yield self._bytes[begin : begin + _CHUNK].data

    def read_into(self, out: NDArray[Any]) -> None:
        """Write the elements into `out`.

        Raises:
            ValueError: if `out` is not contiguous or has another shape or dtype, or if the file has changed
                since the state was loaded.
        """
        if (out.shape, out.dtype) != (self.shape, self.dtype) or not out.flags.c_contiguous:
            raise ValueError(
                f"expected a contiguous array of shape {self.shape} and dtype {self.dtype}, got "
                f"{out.shape} and {out.dtype}"
            )
        target, begin = out.reshape(-1).view(np.uint8), 0
        for piece in self.pieces():
            target[begin : begin + len(piece)] = np.frombuffer(piece, np.uint8)
            begin += len(piece)


class FileArray(LargeArray):
    """A LargeArray whose elements are in a file.

    Args:
        path: the file.
        offset: position of the first element, in bytes.
        shape, dtype: those of the array, which is within the file.
    """

    def __init__(
        self, path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self._path, self._offset = path, offset
        self.shape, self.dtype = shape, dtype
        self._identity = _identity(os.stat(path))

    def pieces(self) -> Iterator[memoryview | bytes]:
        """Yield the bytes of all elements, in C order."""
        with open(self._path, "rb") as file:
            # The checksum was compared when the state was loaded.
            if _identity(os.fstat(file.fileno())) != self._identity:
                raise ValueError(f"{self._path}: the file has changed since the state was loaded")
            file.seek(self._offset)
            for begin in range(0, self.nbytes, _CHUNK):
                yield file.read(min(_CHUNK, self.nbytes - begin))


def _identity(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
