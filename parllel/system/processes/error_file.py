"""The file that takes the standard error of a program.

program        writes, at the end of the file
this process   reads the last lines, a limited number of bytes from the end; never writes
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile

if sys.platform != "win32":
    import fcntl

_MOST_BYTES = 2**14


class ErrorFile:
    """A file of the given path, added to, or one without a name that vanishes with its users.

    path: None for one without a name. A new file is readable for this user alone.

    Attributes:
        readable: whether what was written can be read back, unlike that of a pipe or a terminal.

    Raises: OSError if it cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        if path is None:
            with tempfile.TemporaryFile(buffering=0) as file:
                self.fd = os.dup(file.fileno())
            if sys.platform != "win32":
                # A script may open /dev/stderr anew, which empties the file: what it writes by the descriptor
                # that it was given would leave a hole before it.
                fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_APPEND)
        else:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            self.fd = os.open(path, flags, 0o600)
        # What an earlier program wrote into the same file is not this one's.
        status = os.fstat(self.fd)
        self._start = status.st_size
        self.readable = hasattr(os, "pread") and stat.S_ISREG(status.st_mode)

    def last_lines(self, n: int) -> list[str]:
        """Return up to `n` last lines, of the last 16 KiB at most; none if it is not readable."""
        if not self.readable:
            return []
        size = os.fstat(self.fd).st_size
        begin = max(size - _MOST_BYTES, self._start if size >= self._start else 0)
        # By position, as the one of the descriptor is where the program writes.
        text = os.pread(self.fd, size - begin, begin)
        lines = text.decode(errors="replace").splitlines()
        if begin > self._start and len(lines) > 1:
            lines = lines[1:]  # begins in the middle
        return lines[-n:] if n > 0 else []

    def close(self) -> None:
        """Close our descriptor; may be called twice."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
