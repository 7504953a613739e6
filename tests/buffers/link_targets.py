"""What children do with buffers in the tests."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from parllel.buffers import REGISTER, Link, buffer_map


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
