"""Standard output and error inside the process of an agent.

print, sys.stdout, sys.stderr    -> SharedText, without a system call
descriptors 1 and 2              -> OutputPipes: what C code and other programs print
descriptor 0                     <- nothing
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, TextIO

from parllel.distributed.remote.shared_text import SharedText


class AgentOutput:
    """Send what this process prints to its parent.

    Args:
        text: for what Python prints.
        pipes: for the descriptors of standard output and standard error.
    """

    def __init__(self, text: SharedText, pipes: Sequence[Connection]) -> None:
        text.map()
        self._text = text
        for fd, pipe in enumerate(pipes, 1):
            os.dup2(pipe.fileno(), fd)
            pipe.close()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        self._texts = [self._made(0), self._made(1)]
        self._flush_c = ctypes.CDLL(None).fflush
        self.begin()

    def _made(self, part: int) -> TextIO:
        raw: Any = _Printed(self._text, part)
        return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)

    def begin(self) -> None:
        """Print there again, whatever the agent has put in its place."""
        for part, text in enumerate(self._texts):
            # The same object for as long as it can be used: loggers keep it.
            if text.closed:
                self._texts[part] = self._made(part)
        sys.stdout, sys.stderr = self._texts

    def flush(self) -> None:
        """Send what C code has printed, and keeps."""
        for text in self._texts:
            with contextlib.suppress(ValueError):  # closed by the agent
                text.flush()
        self._flush_c(None)


class _Printed(io.RawIOBase):
    def __init__(self, text: SharedText, part: int) -> None:
        self._text, self._part = text, part

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._part + 1  # for programs that the agent starts, which write to the descriptor

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._text.write(self._part, view)
        return len(view)  # also of what there was no room for: to print much is no error
