"""What children do with buffers in the tests."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from link_trees import samples

from parllel.buffers import buffer_map
from parllel.buffers.link import REGISTER, Link


def serve_buffers(connection: Connection, *, inherited: Any = None) -> None:
    """Answer (what to do, buffer, value); inherited buffers are known from the start."""
    link = Link(connection)
    if inherited is not None:
        link.adopt(inherited)
    while True:
        message = connection.recv_bytes()
        if message[:1] == REGISTER:
            link.accept(message)
            continue
        if message == b"leave":
            return
        what, buffer, value = link.loads(message)
        if what == "read":
            answer = buffer_map(lambda leaf: np.asarray(leaf).tolist(), buffer)
        elif what == "write":
            buffer[...] = value
            answer = None
        elif what == "give back":
            answer = buffer
        else:
            answer = type(buffer).__name__
        connection.send_bytes(link.dumps(answer))


def introduce_half(connection: Connection, end: str) -> None:
    """Introduce a buffer, and come to an end before its descriptors are sent."""

    def come_to_an_end(*args: Any) -> None:
        if end == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif end == "leave a grandchild" and os.fork() == 0:
            time.sleep(300)  # holds the pipe
        os._exit(3)

    reduction.send_handle = come_to_an_end  # type: ignore[assignment]
    Link(connection).register(samples("managed"))
