"""The parent's side in the style of MOSAIC's: a pipe that is polled, with a pause as its timer has one."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

START_S = 60.0
CHUNK = 1 << 16  # what a pipe holds


class MosaicHandle:
    """A worker that is polled until it has answered.

    Args:
        command: of the worker.
        pause_s: before each look for a reply; the window of MOSAIC waits 0.1 s.
    """

    def __init__(self, command: Sequence[str], pause_s: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._pause_s = pause_s
        self._parts: list[bytes] = []
        self._lines: list[bytes] = []

    def send(self, command: dict[str, Any]) -> None:
        """Write a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def try_read_response(self, timeout: float = 0.1) -> dict[str, Any] | None:
        """Return a reply, or None if none came."""
        assert self._process.stdout is not None
        limit = time.monotonic() + timeout
        while not self._lines:
            left = max(0.0, limit - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                return None
            chunk = os.read(self._process.stdout.fileno(), CHUNK)
            if not chunk:
                raise RuntimeError("a worker in the style of MOSAIC has ended")
            *ended, rest = chunk.split(b"\n")
            if ended:
                ended[0] = b"".join([*self._parts, ended[0]])
                self._lines += ended
                self._parts.clear()
            self._parts.append(rest)
        found: dict[str, Any] = json.loads(self._lines.pop(0))
        return found

    def poll(self) -> dict[str, Any]:
        """Return the next reply, as a timer finds it."""
        limit = time.monotonic() + START_S
        while time.monotonic() < limit:
            if self._pause_s:
                time.sleep(self._pause_s)
            reply = self.try_read_response()
            if reply is not None:
                return reply
        raise RuntimeError("a worker in the style of MOSAIC does not answer")

    def close(self) -> None:
        """End the worker."""
        self._process.kill()
        self._process.communicate()
