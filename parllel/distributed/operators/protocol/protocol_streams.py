"""The descriptors of a worker's protocol, out of reach of everything else in its process.

    before       0  commands        1  replies               2  log
    after        0  /dev/null       1  the log, like 2       2  log
                 a  commands        b  replies               closed in children

Libraries print, in C as well, and start programs that do: all of that goes to the log. A child must not read
a command either, nor hold the replies open after the worker's end, at which the driver sees that it ended.
"""

from __future__ import annotations

import contextlib
import os
import select

from parllel.distributed.operators.protocol.message_lines import MessageError

_CHUNK = 2**16
_MAX_LINE_BYTES = 2**27  # as `Program` reads


class ProtocolStreams:
    """Read lines from one descriptor and write them to another; neither is closed.

    Args:
        stdin, stdout: descriptors.
        max_line_bytes: a longer line is left out, and reported by one error.
    """

    def __init__(self, stdin: int, stdout: int, *, max_line_bytes: int = _MAX_LINE_BYTES) -> None:
        self.stdin, self.stdout = stdin, stdout
        self._max_line_bytes = max_line_bytes
        self._rest = b""  # what came after the last line that was returned
        self._ended = False

    def read_line(self) -> bytes | None:
        """Return the next line without its newline, None at the end of the input.

        Raises:
            MessageError: in place of a line above the limit; the next one can be read.
        """
        rest = self._rest
        end = rest.find(b"\n")
        if end < 0:
            if self._ended:
                return None
            chunk = os.read(self.stdin, _CHUNK)
            # As the driver awaits each answer, nearly always one whole line comes.
            if not rest and chunk.find(b"\n") == len(chunk) - 1 and chunk:
                return chunk[:-1] if len(chunk) <= self._max_line_bytes + 1 else self._refuse()
            return self._long_line(rest, chunk)
        self._rest = rest[end + 1 :]
        return rest[:end] if end <= self._max_line_bytes else self._refuse()

    def _long_line(self, rest: bytes, chunk: bytes) -> bytes | None:
        """Return a line that comes in parts."""
        # In a list, as a line of many megabytes would be copied with each of its parts.
        parts, n = [rest], len(rest)
        while chunk:
            end = chunk.find(b"\n")
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
        # Whoever types a last line may leave its newline out.
        return b"".join(parts) or None

    def _refuse(self) -> bytes:
        raise MessageError(
            f"expected a line of at most {self._max_line_bytes} bytes, got a longer one"
        )

    def write(self, lines: bytes) -> None:
        """Write all of `lines`.

        Raises:
            BrokenPipeError: if nobody can read them any more.
        """
        try:
            n = os.write(self.stdout, lines)
        except BlockingIOError:
            n = 0
        if n < len(lines):
            self._write_rest(memoryview(lines)[n:])

    def _write_rest(self, lines: memoryview) -> None:
        while lines:
            try:
                lines = lines[os.write(self.stdout, lines) :]
            except BlockingIOError:
                # The other side may have made its end, which is the same one, non-blocking.
                select.select([], [self.stdout], [])


_taken: ProtocolStreams | None = None


def take_streams() -> ProtocolStreams:
    """Take standard input and output away from this process; return what the protocol uses from now on.

    The first thing that a worker does, before it imports what may print. Later calls return the same.
    """
    global _taken
    if _taken is None:
        # Copies are closed by `exec`; 0 and 1 are passed on.
        streams = ProtocolStreams(os.dup(0), os.dup(1))
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # closed
            os.dup2(nowhere, 1)
        os.close(nowhere)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_leave_to_parent)
        _taken = streams
    return _taken


def _leave_to_parent() -> None:
    # A fork without `exec`, as multiprocessing makes them.
    if _taken is not None:
        for fd in (_taken.stdin, _taken.stdout):
            with contextlib.suppress(OSError):
                os.close(fd)
