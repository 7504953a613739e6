"""The main process's end of one worker of a SynchronizedProcessCage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parllel.buffers import Link
from parllel.cages.worker import CALL, SEQUENCE
from parllel.errors import WorkerDiedError, WorkerTimeoutError
from parllel.processes import Child, raise_packed

LAST_WORDS_S = 0.5  # what a dead worker has written is there already


class WorkerEnd:
    """A worker's process, and the pipe to it.

    Args:
        child: the process.
        name: what messages call it.
        buffers: what it inherited.
    """

    def __init__(self, child: Child, name: str, buffers: Any) -> None:
        self.child = child
        self.name = name
        self.failed_well = False  # whether the last error left the worker as it was
        self._link = Link(child.connection, child.pid)
        if buffers is not None:
            self._link.adopt(buffers)

    def send(self, number: int, op: str, args: Sequence[Any], timeout_s: float) -> None:
        """Send a call; buffers that the worker does not know are introduced first."""
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
        """Return the exception that a worker left, or one that says how it died."""
        try:
            while True:
                self._link.receive(self.child, LAST_WORDS_S, doing)
        except WorkerTimeoutError:
            return WorkerDiedError(
                f"{self.name}: process {self.child.pid} stopped answering {doing}"
            )
        except Exception as error:
            return error

    def close(self) -> None:
        """Kill the process if it runs, and let go of everything."""
        self.child.kill()
        self._link.clear()
