"""Output of an agent in shared memory, which outlives the agent's process::

    agent's process    SharedText.write: appends to a part, drops what exceeds it, then updates the length
    this process       SharedText.take: reads the lengths, then the text, and sets the lengths to zero

    bytes 0-7, 8-15    lengths of the two parts: standard output, standard error
    the rest           the parts

Text is written before its length, so a process that is killed in between loses only the last piece. The
agent's code can write anything at any time: lengths are clipped, and the memory is read by `pread`, which
survives a truncated file where a mapping would raise SIGBUS. An answer arrives by a pipe, whose system calls
order the output written before it.
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
    """Two texts of limited size, written by a child and read by its parent.

    multiprocessing passes this object to the child when it starts.

    Args:
        size: maximum number of bytes of each text.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._fd = _memory()
        os.ftruncate(self._fd, _LENGTHS.size + 2 * size)

    def __reduce__(self) -> Any:
        # The descriptor is duplicated into the child; the memory lives until both sides have closed it.
        return _opened, (reduction.DupFd(self._fd), self.size)

    # ------------------------------------------------------------------ in the child

    def map(self) -> None:
        """Map the memory for writing. Call it once, in the child."""
        self._map = mmap.mmap(self._fd, _LENGTHS.size + 2 * self.size)

    def write(self, part: int, data: bytes | memoryview) -> None:
        """Append data to a part. Data beyond the part's size is dropped."""
        lengths = list(_LENGTHS.unpack_from(self._map))
        # Read from the memory each time, because the parent resets it between acts. Clipped, because the
        # agent's own code may have overwritten it.
        length = min(lengths[part], self.size)
        taken = data[: self.size - length]
        if taken:
            start = _LENGTHS.size + part * self.size + length
            self._map[start : start + len(taken)] = bytes(taken)
            # Last: the text is visible to the parent only with its length.
            struct.pack_into("=Q", self._map, 8 * part, length + len(taken))

    # ------------------------------------------------------------------ in the parent

    def take(self) -> tuple[bytes, bytes]:
        """Return both texts and clear them."""
        # One system call for an agent that printed nothing; short if the agent has truncated the file.
        head = os.pread(self._fd, _LENGTHS.size, 0)
        if head == _NONE or len(head) < _LENGTHS.size:
            return b"", b""
        texts = [
            os.pread(self._fd, min(length, self.size), _LENGTHS.size + part * self.size)
            for part, length in enumerate(_LENGTHS.unpack(head))
        ]
        # The child is waiting for a request now, or about to be killed. Only output of a background thread of
        # the agent could get lost here.
        os.pwrite(self._fd, _NONE, 0)
        return texts[0], texts[1]

    def close(self) -> None:
        """Close the descriptor of the memory. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def _memory() -> int:
    if sys.platform == "linux":
        return os.memfd_create("parllel-agent", os.MFD_CLOEXEC)
    # Other systems have no memfd: this file is unlinked, and lives as long as its descriptors.
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _opened(fd: Any, size: int) -> SharedText:
    text = SharedText.__new__(SharedText)
    text.size, text._fd = size, fd.detach()
    return text
