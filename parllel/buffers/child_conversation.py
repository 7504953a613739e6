"""The child's end of a conversation; conversation.py describes the protocol.

    parent -> child   next_request   whole requests, in order; buffers introduced in between are registered
    child -> parent   reply_to       the result or exception of a function, with the number of its request
                      fail           why this process ends, then results that were not requested yet

Reads have no timeout, because the child ends with its parent anyway. Writes have none either, because the
parent may be busy for any length of time before it reads.
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
    """Receives requests from the parent and replies to them.

    Args:
        connection: the child's end of the pipe.
        buffers: buffers that the child inherited and both ends know.
    """

    def __init__(self, connection: Connection, buffers: Any = None) -> None:
        self._channel = PipeEnd(connection)
        self._link = Link(connection)
        if buffers is not None:
            self._link.adopt(buffers)

    def next_request(self) -> bytes | None:
        """Wait for the next request. None if the parent died or closed its end."""
        try:
            message = self._channel.read(None)
            while message[:1] == REGISTER:
                self._link.accept(message)
                message = self._channel.read(None)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            return None
        return message

    def read_call(self, request: bytes) -> tuple[int, str, tuple[Any, ...]]:
        """Return the number, operation and arguments of a CALL."""
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
        """Call a function and return a reply that holds its result or exception.

        survived: exception types that are sent as an ERROR reply; all others are raised here.
        plain: whether to use the faster path of `Link.dumps`.
        """
        try:
            return self.answer(number, function(*args), plain=plain)
        except survived as error:
            return self.error(number, error)

    def answer(self, number: int, value: Any, *, plain: bool = False) -> bytes:
        """Return an ANSWER with a value."""
        return HEAD.pack(ANSWER, number) + self._link.dumps(value, plain=plain)

    def error(self, number: int, error: Exception) -> bytes:
        """Return an ERROR reply, which reports that the request failed but this process continues."""
        return HEAD.pack(ERROR, number) + pack_exception(error)

    def send(self, message: bytes) -> None:
        """Send a reply. Blocks while the pipe is full."""
        self._channel.write(message, timeout_s=math.inf)

    def fail(self, error: BaseException, pending_results: Callable[[], Any] = lambda: None) -> None:
        """Send the exception that ends this process, then the result of `pending_results`.

        Call this before closing anything, because closing may fail or hang too.
        """
        with suppress(OSError):  # the parent may be gone
            self.send(EXCEPTION + pack_exception(error))
        with suppress(Exception):
            self.send(self.answer(PENDING_RESULTS, pending_results()))
