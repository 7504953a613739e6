"""What an agent prints, in memory that outlasts its process.

    agent's process    SharedText.write: appends to its part, drops what exceeds it, then writes the length
    this process       SharedText.take: reads lengths, and text if there is any, and sets lengths to zero

    bytes 0-7, 8-15    lengths of the two parts: standard output, standard error
    the rest           the parts

Text comes before its length, so a process that is killed between the two loses the last piece and nothing
else. The agent may write anything at any time, so that lengths are not believed, and memory is read by
`pread`, which survives a file that was cut, as a map would not. Replies come by a pipe, whose system
calls order what was written before them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
import tempfile
from multiprocessing import reduction
from typing import Any

_LENGTHS = struct.Struct("=QQ")
_NONE = bytes(_LENGTHS.size)


class SharedText:
    """Two texts of limited size that a child writes and its parent reads.

    It goes to a child as multiprocessing hands objects over at the start of a process.

    Args:
        size: bytes for each of the two.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._fd = _memory()
        os.ftruncate(self._fd, _LENGTHS.size + 2 * size)

    def __reduce__(self) -> Any:
        return _opened, (reduction.DupFd(self._fd), self.size)

    # ------------------------------------------------------------------ in the child

    def map(self) -> None:
        """Make the memory writable here; call once."""
        self._map = mmap.mmap(self._fd, _LENGTHS.size + 2 * self.size)

    def write(self, part: int, data: bytes | memoryview) -> None:
        """Append to a part what there is room for."""
        lengths = list(_LENGTHS.unpack_from(self._map))
        length = min(lengths[part], self.size)
        taken = data[: self.size - length]
        if taken:
            start = _LENGTHS.size + part * self.size + length
            self._map[start : start + len(taken)] = bytes(taken)
            struct.pack_into("=Q", self._map, 8 * part, length + len(taken))

    # ------------------------------------------------------------------ in the parent

    def take(self) -> tuple[bytes, bytes]:
        """Return both texts, and forget them."""
        head = os.pread(self._fd, _LENGTHS.size, 0)
        if head == _NONE or len(head) < _LENGTHS.size:
            return b"", b""
        texts = [
            os.pread(self._fd, min(length, self.size), _LENGTHS.size + part * self.size)
            for part, length in enumerate(_LENGTHS.unpack(head))
        ]
        os.pwrite(self._fd, _NONE, 0)
        return texts[0], texts[1]

    def close(self) -> None:
        """Close the memory; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def _memory() -> int:
    if sys.platform == "linux":
        return os.memfd_create("parllel-agent", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _opened(fd: Any, size: int) -> SharedText:
    text = SharedText.__new__(SharedText)
    text.size, text._fd = size, fd.detach()
    return text
