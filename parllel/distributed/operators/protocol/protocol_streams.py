"""Private descriptors for a worker's protocol, out of reach of everything else in its process.

    before       0  commands        1  replies               2  log
    after        0  /dev/null       1  the log, like 2       2  log
                 a  commands        b  replies               closed in children

Libraries print, even from C, and start programs that do: all that output goes to the log. Children must not
read commands. Nor may they keep the reply pipe open after the worker's exit, since the driver learns of the
exit by its closing.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys

from parllel.distributed.operators.protocol.message_lines import MessageError

_CHUNK = 2**16
_MAX_LINE_BYTES = 2**27  # as `Program` reads


class ProtocolStreams:
    """Reads lines from one descriptor and writes lines to another. Closes neither.

    Args:
        stdin, stdout: file descriptors to read from and write to.
        max_line_bytes: maximum length of a line. A longer line is discarded and reported by one
            error.
    """

    def __init__(self, stdin: int, stdout: int, *, max_line_bytes: int = _MAX_LINE_BYTES) -> None:
        self.stdin, self.stdout = stdin, stdout
        self._max_line_bytes = max_line_bytes
        self._rest = b""  # read, but not yet returned
        self._ended = False

    def read_line(self) -> bytes | None:
        """Return the next line without its newline, or None at the end of the input.

        Raises:
            MessageError: for a line above the limit. The next line can be read afterwards.
        """
        rest = self._rest
        end = rest.find(b"\n")
        if end < 0:
            if self._ended:
                return None
            chunk = os.read(self.stdin, _CHUNK)
            # Fast path: the driver awaits each reply, so a read nearly always returns exactly one line.
            if not rest and chunk.find(b"\n") == len(chunk) - 1 and chunk:
                return chunk[:-1] if len(chunk) <= self._max_line_bytes + 1 else self._refuse()
            return self._long_line(rest, chunk)
        self._rest = rest[end + 1 :]
        return rest[:end] if end <= self._max_line_bytes else self._refuse()

    def _long_line(self, rest: bytes, chunk: bytes) -> bytes | None:
        """Return a line that arrives in several reads."""
        # Collected in a list: adding to a bytes object would copy megabytes with each read.
        parts, n = [rest], len(rest)
        while chunk:
            end = chunk.find(b"\n")
            # Past the limit only the length is counted, so memory stays bounded.
            if n <= self._max_line_bytes:
                parts.append(chunk if end < 0 else chunk[:end])
            n += len(chunk) if end < 0 else end
            if end >= 0:
                self._rest = chunk[end + 1 :]
                return b"".join(parts) if n <= self._max_line_bytes else self._refuse()
            chunk = os.read(self.stdin, _CHUNK)
        self._rest, self._ended = b"", True
        if n > self._max_line_bytes:
            return self._refuse()
        # The last line may lack its newline, as when a person types it.
        return b"".join(parts) or None

    def _refuse(self) -> bytes:
        raise MessageError(
            f"expected a line of at most {self._max_line_bytes} bytes, got a longer one"
        )

    def write(self, lines: bytes) -> None:
        """Write all of `lines`. Blocks while the pipe is full.

        Raises:
            BrokenPipeError: if the reading end is closed.
        """
        try:
            n = os.write(self.stdout, lines)
        except BlockingIOError:
            n = 0  # the pipe is full; `_write_rest` waits for room
        if n < len(lines):
            self._write_rest(memoryview(lines)[n:])

    def _write_rest(self, lines: memoryview) -> None:
        while lines:
            try:
                lines = lines[os.write(self.stdout, lines) :]
            except BlockingIOError:
                # Both ends may share one open file description, which the other side made non-blocking.
                select.select([], [self.stdout], [])


_taken: ProtocolStreams | None = None


def take_streams() -> ProtocolStreams:
    """Reserve standard input and output of this process for the protocol, and return them.

    A worker calls this first, before any import that may print. Later calls return the same object.
    """
    global _taken
    if _taken is None:
        # Duplicates are closed by `exec` in children; 0 and 1 are inherited, hence replaced below.
        streams = ProtocolStreams(os.dup(0), os.dup(1))
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # descriptor 2 is closed
            os.dup2(nowhere, 1)
        os.close(nowhere)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # What an environment prints is seen at once, and before what it fails with.
            sys.stdout.reconfigure(line_buffering=True)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_leave_to_parent)
        _taken = streams
    return _taken


def _leave_to_parent() -> None:
    # A fork without `exec`, as multiprocessing makes, inherits the duplicates too.
    if _taken is not None:
        for fd in (_taken.stdin, _taken.stdout):
            with contextlib.suppress(OSError):
                os.close(fd)
