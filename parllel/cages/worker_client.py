"""The main process's end of one worker of a SynchronizedProcessCage."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from parllel.buffers import Link
from parllel.cages.worker import CALL, LEFT_BEHIND, SEQUENCE
from parllel.errors import WorkerDiedError, WorkerTimeoutError
from parllel.processes import Child, raise_packed

LEFT_BEHIND_S = 0.2
LAST_WORDS_S = 2.0  # what a dead worker wrote is there already; one that fails is writing


class WorkerClient:
    """A worker's process, and the pipe to it.

    Args:
        child: the process.
        name: what messages call it.
        buffers: what it inherited.
    """

    def __init__(self, child: Child, name: str, buffers: Any) -> None:
        self.child = child
        self.name = name
        self.left_behind: Any = None  # what a worker that failed had collected
        self.failed_well = False  # whether the last error left the worker as it was
        self._link = Link(child.connection, child)
        if buffers is not None:
            self._link.adopt(buffers)

    def send(self, number: int, op: str, args: Sequence[Any], timeout_s: float) -> None:
        """Send a call; buffers that the worker does not know are introduced first."""
        self._link.timeout_s = timeout_s
        message = self._link.dumps((number, op, tuple(args)))
        self.child.send_bytes(CALL + message, timeout_s)

    def receive(self, number: int, timeout_s: float, doing: str, mail: bytes = b"") -> Any:
        """Return the answer to a call; answers to earlier ones, interrupted, are dropped.

        mail: the answer, if it came that way.

        Raises:
            WorkerDiedError, WorkerTimeoutError: as Child.receive.
            Exception: what the worker raised; it is well if `failed_well` is set.
        """
        self.failed_well = False
        while True:
            reply = mail or self._link.receive(self.child, timeout_s, doing)
            if reply[:1] == CALL:
                found, result = self._link.loads(reply[1:])
                if found == number:
                    return result
            elif SEQUENCE.unpack_from(reply)[1] == number:
                self.failed_well = True
                where = f"{self.child.name}, process {self.child.pid}, {doing}"
                raise_packed(reply[SEQUENCE.size :], where)

    def last_words(self, doing: str) -> BaseException:
        """Return the exception that a worker left, or one that says how it died.

        What it had collected follows; see `left_behind`.
        """
        try:
            while True:
                self._link.receive(self.child, LAST_WORDS_S, doing)
        except WorkerTimeoutError:
            return WorkerDiedError(
                f"{self.name}: process {self.child.pid} stopped answering {doing}"
            )
        except WorkerDiedError as error:
            return error
        except Exception as error:
            with contextlib.suppress(Exception):
                self.left_behind = self.receive(LEFT_BEHIND, LEFT_BEHIND_S, doing)
            return error

    def close(self) -> None:
        """Kill the process if it runs, and let go of everything."""
        self.child.kill()
        self._link.clear()
