"""The child's end of a conversation; see conversation.py for what goes to and fro.

    parent -> child   next_request   whole requests, one after the other; buffers are taken in on the way
    child -> parent   reply_to       what a function returns or raises, under the number of its request
                      fail           that this process ends, and why; then what nobody had asked for yet

Reads wait for ever, as a child ends with its parent anyway; writes wait without an end too, as the parent may
be busy for as long as it likes before it reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from parllel.buffers.conversation import ANSWER, ERROR, HEAD, PENDING_RESULTS
from parllel.buffers.link import REGISTER, Link
from parllel.system.processes.exceptions import pack_exception
from parllel.system.processes.in_child import EXCEPTION
from parllel.system.processes.pipe_end import PipeEnd


class ChildConversation:
    """Take requests, and answer them.

    Args:
        connection: this process's end of the pipe.
        buffers: what was inherited.
    """

    def __init__(self, connection: Connection, buffers: Any = None) -> None:
        self._channel = PipeEnd(connection)
        self._link = Link(connection)
        if buffers is not None:
            self._link.adopt(buffers)

    def next_request(self) -> bytes | None:
        """Wait for the next request; None if the parent is gone or has closed its end."""
        try:
            message = self._channel.read(None)
            while message[:1] == REGISTER:
                self._link.accept(message)
                message = self._channel.read(None)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            return None
        return message

    def read_call(self, request: bytes) -> tuple[int, str, tuple[Any, ...]]:
        """Return number, operation and arguments of a CALL."""
        _, number = HEAD.unpack_from(request)
        op, args = self._link.loads(request[HEAD.size :])
        return number, op, args

    def reply_to(
        self,
        number: int,
        survived: tuple[type[Exception], ...],
        function: Callable[..., Any],
        *args: Any,
        plain: bool = False,
    ) -> bytes:
        """Call a function and return the reply that says what it returned or raised.

        survived: exceptions after which this process goes on; all others are raised here.
        plain: as for `Link.dumps`.
        """
        try:
            return self.answer(number, function(*args), plain=plain)
        except survived as error:
            return self.error(number, error)

    def answer(self, number: int, value: Any, *, plain: bool = False) -> bytes:
        """Return the reply that carries a value."""
        return HEAD.pack(ANSWER, number) + self._link.dumps(value, plain=plain)

    def error(self, number: int, error: Exception) -> bytes:
        """Return the reply that says what a request has failed of; this process goes on."""
        return HEAD.pack(ERROR, number) + pack_exception(error)

    def send(self, message: bytes) -> None:
        """Send a reply, as soon as there is room for it."""
        self._channel.write(message, timeout_s=math.inf)

    def fail(self, error: BaseException, pending_results: Callable[[], Any] = lambda: None) -> None:
        """Say why this process is going to end, and hand over what `pending_results` returns.

        To be called before anything is closed, as that may fail too, or hang.
        """
        with suppress(OSError):  # the parent may be gone
            self.send(EXCEPTION + pack_exception(error))
        with suppress(Exception):
            self.send(self.answer(PENDING_RESULTS, pending_results()))
