"""Sums over several learners on several machines, over TCP, by PyTorch's gloo.

    first learner   listens    TCPStore on its node, until the end
    learner r       writes     "ready r" to the store, and waits until all have
    learner r       connects   with each other learner (gloo, which finds their addresses in the store)
    add             all send and receive parts of the array; each part is added up in one place, and so alike
    gather          add, of bytes that are zero except for those of one learner

A connection breaks when the process at its other end has gone. This ends the exchange, and the first learner
finds out why. One that hangs, or whose machine has gone, is found by the time limit, or by `look`.

The process group is not that of `torch.distributed.init_process_group`, which is left to the user.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from parllel.algos.learner_exchange import LearnerLostError
from parllel.errors import ClosedError

_Store: Any = dist.TCPStore  # type: ignore[attr-defined]
_LOOK_S = 0.1  # between two looks at whether the others are alive
_CLOSE_S = 0.5
_POLL_S = 0.01  # while all learners become ready
# Names the interface by which gloo connects; PyTorch documents it.
_INTERFACE = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR = 0x8915  # of Linux: the address of an interface


def check_gloo(who: str) -> None:
    """Raise ImportError if this PyTorch has no gloo.

    who: for the message.
    """
    if not (dist.is_available() and dist.is_gloo_available()):
        raise ImportError(
            f"{who} needs torch.distributed with gloo, which this PyTorch ({torch.__version__}) was built "
            "without"
        )


class GlooExchange:
    """Connections between `n` learners. Each makes its own, and calls `open` once.

    Args:
        n: number of learners.
        host: address of this process's machine.
        first: where the first learner listens, its `address`; None in the first learner, which begins to.

    Attributes:
        address: host and port at which the first learner listens.
    """

    def __init__(self, n: int, host: str, first: tuple[str, int] | None = None) -> None:
        self._n, self._host = n, host
        self._group: Any = None
        self._store: Any = None
        if first is None:
            self._store = _Store(host, 0, is_master=True, wait_for_workers=False)
            first = host, self._store.port
        self.address = first

    def open(self, rank: int, timeout_s: float, look: Callable[[], object]) -> None:
        """Take part as learner `rank`, once all others have called it, too.

        timeout_s: time limit, also of an exchange.  look: called now and then while this learner waits; may
            raise.

        Raises:
            LearnerLostError: if another learner has gone, or does not come within the time limit.
        """
        self._rank, self._look = rank, look
        limit, deadline = timedelta(seconds=timeout_s), time.monotonic() + timeout_s
        with self._lost():
            if self._store is None:
                host, port = self.address
                self._store = _Store(host, port, timeout=limit, wait_for_workers=False)
            store, ready = self._store, [f"ready {r}" for r in range(self._n)]
            store.set(ready[rank], "")
            while not store.check(ready):
                look()
                if time.monotonic() > deadline:
                    raise LearnerLostError(
                        f"learner {rank}: another learner was not ready within {timeout_s:g} s"
                    )
                time.sleep(_POLL_S)
            with _interface(self._host):
                self._group = self._connected(store, limit)

    def _connected(self, store: Any, limit: timedelta) -> Any:
        """Return the connections with all learners."""
        found: list[Any] = []

        def connect() -> None:
            try:
                found.append(dist.ProcessGroupGloo(store, self._rank, self._n, limit))
            except Exception as error:
                found.append(error)

        # In a thread, as it waits for all others: for the whole time limit, if one has died a moment ago.
        thread = threading.Thread(target=connect, name="gloo", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK_S)
            self._look()
        (group,) = found
        if isinstance(group, Exception):
            raise group
        return group

    def settle(self) -> None:
        """Nothing to release."""

    def add(self, array: NDArray[Any]) -> None:
        """Replace a contiguous array, in place, by the sum over all learners, rounded alike in all.

        All learners must call it, with arrays of equal shape and dtype.

        Raises:
            ClosedError: before `open`, and after `close`.
            LearnerLostError: if another learner has gone, or does not come within the time limit.
            ValueError: if the array is not contiguous.
        """
        if self._group is None:
            raise ClosedError("Learners: used before the run has started, or after its end")
        if not array.flags.c_contiguous:
            raise ValueError(
                f"Learners: add: expected a contiguous array, got strides {array.strides}"
            )
        if not array.size:
            return
        with self._lost():
            work = self._group.allreduce([torch.from_numpy(array.reshape(-1))])
            while not work.is_completed():
                # Raises if it takes longer, or if it has failed.
                with contextlib.suppress(RuntimeError):
                    work.wait(timedelta(seconds=_LOOK_S))
                if not work.is_completed():
                    self._look()
            work.wait()

    def gather(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the arrays of all learners, in their order. Otherwise like `add`."""
        own = np.ascontiguousarray(array)
        parts = np.zeros((self._n, own.nbytes), np.uint8)
        parts[self._rank] = own.reshape(-1).view(np.uint8)
        self.add(parts)
        return [part.view(own.dtype).reshape(own.shape) for part in parts]

    @contextlib.contextmanager
    def _lost(self) -> Iterator[None]:
        """Context manager that replaces errors of connections."""
        try:
            yield
        except LearnerLostError:
            raise
        except RuntimeError as error:
            raise LearnerLostError(
                f"learner {self._rank}: lost another learner: {error}"
            ) from error

    def close(self) -> None:
        """Break the connections, which ends the waits of the others. Idempotent."""
        held, self._group, self._store = [self._group, self._store], None, None
        # In a thread, as connections outlive an exchange that has not ended: with a learner that hangs, until
        # that one is killed, or the time limit.
        thread = threading.Thread(target=held.clear, name="gloo close", daemon=True)
        thread.start()
        thread.join(_CLOSE_S)


@contextlib.contextmanager
def _interface(address: str) -> Iterator[None]:
    """Context manager in which gloo uses the interface with an address, unless the user chose one.

    Its own choice is the address that the name of the machine leads to, often 127.0.1.1.
    """
    found = None if _INTERFACE in os.environ else _interface_of(address)
    if found is None:
        yield
        return
    os.environ[_INTERFACE] = found
    try:
        yield
    finally:
        os.environ.pop(_INTERFACE, None)


def _interface_of(address: str) -> str | None:
    """Return the name of the interface with an address; None if it cannot be found."""
    with contextlib.suppress(ImportError, OSError), socket.socket(type=socket.SOCK_DGRAM) as any_:
        import fcntl

        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                request = struct.pack("256s", name.encode())
                reply = fcntl.ioctl(any_.fileno(), _SIOCGIFADDR, request)
                if socket.inet_ntoa(reply[20:24]) == address:
                    return name
    return None
