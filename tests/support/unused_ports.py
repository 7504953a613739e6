"""Ports for programs that cannot choose one themselves, or whose port must be known before they start."""

from __future__ import annotations

import contextlib
import random
import socket

_PORTS = range(20_000, 30_000)


def unused_port() -> int:
    """Return a port of loopback that no other program has.

    It is not from the range of those that the system gives to whoever asks for any: a server of another test
    got such a port before the program listened, and was taken for it.

    Raises:
        OSError: if none of a hundred can be bound.
    """
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port of {_PORTS} could be bound")
