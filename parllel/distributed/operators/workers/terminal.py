"""Terminal that a person types at, always restored to its previous settings.

    this process                         the terminal
    show         ------------------->    text
    read_key     raw ->  <- key          no echo, no waiting for Enter; Ctrl-C stays a signal
                 restored ->             whatever ends the read: a key, SIGTERM, Ctrl-C, an error
    read_line    <-------------------    with the terminal's echo and editing

The settings are changed only while a key is awaited, so only a SIGKILL in that time can leave them changed.
"""

from __future__ import annotations

import codecs
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from parllel.errors import ParllelError
from parllel.types import Closeable

_SLICE_MS = 1000  # between looks at a wait that has no limit
_ESCAPE_MS = 50  # between the bytes of one key
# Escape sequences and control characters of named keys.
_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    " ": "space",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
}
_END = "\x04"  # Ctrl-D
_UNREADABLE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class TerminalError(ParllelError, OSError):
    """Raised if there is no terminal, or its user has left."""


class Terminal(Closeable):
    """Asks a person by text and keys.

    Args:
        path: path of the terminal.
        driver: file descriptor whose other end is closed once nobody waits for the answer, or None.

    Raises:
        TerminalError: if the path is not a terminal, or cannot be opened.
    """

    def __init__(self, path: str = "/dev/tty", driver: int | None = None) -> None:
        self._fd = -1
        try:
            # O_NOCTTY: as the controlling terminal of a worker's session, it would send Ctrl-C to the worker.
            self._fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            raise TerminalError(
                f"{path}: expected a terminal to read keys from: {os.strerror(error.errno or 0)}; start the "
                "worker in a terminal, or send an action with each step"
            ) from None
        if not os.isatty(self._fd):
            self.close()
            raise TerminalError(
                f"{path}: expected a terminal to read keys from, got another kind of file"
            )
        self._path, self._driver = path, driver
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(self, text: str) -> None:
        """Write text and a newline."""
        left = memoryview((text + "\n").encode(errors="replace"))
        while left:
            left = left[os.write(self._fd, left) :]

    def read_key(self) -> str:
        """Wait for a key and return it: a character, or a name such as "left", "space", "enter".

        Raises:
            TerminalError: after Ctrl-D, and if the terminal or the driver was closed.
        """
        with _single_keys(self._fd):
            key = self._read_character()
            # Arrows are several bytes, which arrive together. The Escape key is a single one.
            if key == "\x1b" and self._ready(_ESCAPE_MS):
                key += self._read_character()
                while key[-1] in "[O0123456789;" and self._ready(_ESCAPE_MS):
                    key += self._read_character()
        if key == _END:
            raise TerminalError(f"{self._path}: the user ended the input with Ctrl-D")
        return _NAMES.get(key, key)

    def read_line(self) -> str:
        """Wait for a line and return it without its newline. Raises as `read_key`."""
        self._wait()
        line = self._read(4096)
        if not line:
            raise TerminalError(f"{self._path}: the user ended the input with Ctrl-D")
        return line.decode(errors="replace").rstrip("\r\n")

    def close(self) -> None:
        """Close the terminal. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _read_character(self) -> str:
        while True:
            self._wait()
            read = self._read(1)
            if not read:
                return _END
            character = self._decoder.decode(read)
            if character:
                return character

    def _read(self, n: int) -> bytes:
        try:
            return os.read(self._fd, n)
        except OSError as error:  # the terminal was closed
            raise TerminalError(f"{self._path}: {os.strerror(error.errno or 0)}") from None

    def _wait(self) -> None:
        """Wait until something is typed, without a time limit."""
        while not self._ready(_SLICE_MS):
            pass

    def _ready(self, timeout_ms: int) -> bool:
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        if self._driver is not None:
            # No POLLIN: waiting commands do not matter here. Hang-ups are reported for any event mask.
            poller.register(self._driver, 0)
        for fd, events in poller.poll(timeout_ms):
            if fd == self._driver and events & _UNREADABLE:
                raise TerminalError(f"{self._path}: the driver that asked for an action has ended")
            if fd == self._fd:
                return True
        return False


@contextmanager
def _single_keys(fd: int) -> Iterator[None]:
    """Read single keys without echo inside the context."""
    # Imported here: Windows has neither module.
    import termios
    import tty

    before: list[Any] = termios.tcgetattr(fd)
    try:
        # TCSAFLUSH discards what was typed before the question: it was meant for something else.
        tty.setcbreak(fd, termios.TCSAFLUSH)
        yield
    finally:
        with suppress(termios.error):  # closed meanwhile; the read has raised already
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
