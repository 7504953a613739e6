"""Per-thread capture of output in this process::

    threads in `printed()`     their output goes to separate texts
    all other threads          print as before

sys.stdout and sys.stderr are replaced when the first thread enters and restored when the last one leaves.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

# Per thread, because functions of several agents run at the same time and share sys.stdout.
_own = threading.local()
_lock = threading.Lock()  # guards the two below, and the replacement itself
_n_open = 0
_before: tuple[TextIO, TextIO] = (sys.stdout, sys.stderr)


class _Limited(io.StringIO):
    """Text that drops everything beyond its maximum length."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        self._left = longest

    def write(self, text: str) -> int:
        taken = text[: self._left]
        self._left -= len(taken)
        super().write(taken)
        return len(text)


class _ByThread(io.TextIOBase):
    """Replacement of sys.stdout (0) or sys.stderr (1) that writes to the current thread's text."""

    def __init__(self, place: int, before: TextIO) -> None:
        self._place, self._before = place, before

    def _text(self) -> Any:
        texts = getattr(_own, "texts", None)
        return self._before if texts is None else texts[self._place]

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written: int = self._text().write(text)
        return written

    def flush(self) -> None:
        self._text().flush()

    def isatty(self) -> bool:
        return bool(self._text().isatty())

    def fileno(self) -> int:
        # Subprocesses of a function write to the real descriptor, and are not captured.
        return self._before.fileno()

    def close(self) -> None:
        """Do nothing, since all threads share it."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._before.encoding or "utf-8"

    @property
    def buffer(self) -> Any:
        return self._before.buffer


@contextmanager
def printed(longest: int) -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Capture what this thread prints to sys.stdout and sys.stderr.

    Blocks can be nested. The inner block has separate texts.

    longest: number of characters to keep of each stream.
    """
    outer = getattr(_own, "texts", None)
    texts = _Limited(longest), _Limited(longest)
    # The streams are replaced before this thread has texts, and restored after it has lost them: at any
    # moment another thread finds either the original streams or replacements that pass its output on to them.
    _begin()
    _own.texts = texts
    try:
        yield texts
    finally:
        _own.texts = outer
        _end()


def _begin() -> None:
    global _n_open, _before
    with _lock:
        # Only the first of overlapping blocks may save the streams: later ones would save replacements.
        if _n_open == 0:
            _before = (sys.stdout, sys.stderr)
            sys.stdout, sys.stderr = (_ByThread(i, text) for i, text in enumerate(_before))
        _n_open += 1


def _end() -> None:
    global _n_open
    with _lock:
        _n_open -= 1
        # Not restored if somebody else has replaced it meanwhile.
        if _n_open == 0:
            if isinstance(sys.stdout, _ByThread):
                sys.stdout = _before[0]
            if isinstance(sys.stderr, _ByThread):
                sys.stderr = _before[1]
