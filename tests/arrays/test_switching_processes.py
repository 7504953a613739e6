from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest

from parllel.arrays.switching import SwitchingManagedMemoryArray
from parllel.buffers import Field, allocate
from parllel.buffers.link import REGISTER, Link
from parllel.buffers.tree import buffer_rotate
from parllel.errors import RegistrationError
from parllel.system.processes.child import Child
from parllel.types import BatchSpec

LONG_S = 30.0

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def echo(connection: Connection) -> None:
    """Answer each buffer with its first column, padding included, and write its number of calls there."""
    link = Link(connection)
    calls = 0
    while True:
        message = connection.recv_bytes()
        if message == b"leave":
            return
        if message[:1] == REGISTER:
            link.accept(message)
            continue
        buffer = link.loads(message)
        calls += 1
        p = buffer.padding
        rows = buffer[-p : len(buffer) + p] if p else buffer
        found = np.asarray(rows)[:, 0].tolist()
        buffer[0, 0] = -calls
        connection.send_bytes(link.dumps(found))


@contextmanager
def partner(method: str) -> Iterator[Any]:
    child = Child(echo, start_method=method)
    link = Link(child.connection, child)

    def ask(buffer: Any) -> Any:
        child.send_bytes(link.dumps(buffer))
        return link.loads(child.receive(LONG_S, "echo"))

    try:
        yield ask
        child.send_bytes(b"leave")
    finally:
        child.end()
        link.clear()


def test_the_other_side_of_a_pipe_follows() -> None:
    tree: Any = allocate(
        {"a": Field(np.int64(0), padding=1, dtype=np.int64), "b": False},
        BatchSpec(3, 2),
        storage="managed",
        switching=True,
    )
    with partner("forkserver") as ask:
        for batch in range(5):
            for t in range(4):
                tree.a[t] = 10 * batch + t
            before = 10 * batch - 10 + 2 if batch else 0
            assert ask(tree.a) == [before, *(10 * batch + t for t in range(4))]
            assert int(np.asarray(tree.a)[0, 0]) == -batch - 1
            buffer_rotate(tree)


def test_a_view_crosses_as_its_place() -> None:
    array = SwitchingManagedMemoryArray((2, 1), np.int64)
    with partner("fork") as ask:
        array[...] = 1
        view = array[:]
        array.rotate()
        array[...] = 2
        assert ask(array) == [2, 2]
        assert ask(view) == [1, 1]
        assert np.asarray(array).ravel().tolist() == [-1, 2]
        assert np.asarray(view).ravel().tolist() == [-2, 1]


def test_a_tree_on_two_sides_at_once_is_refused() -> None:
    tree: Any = allocate({"a": 0, "b": 1}, BatchSpec(3, 2), storage="managed", switching=True)
    tree.a.rotate()
    with (
        partner("fork") as ask,
        pytest.raises(
            RegistrationError, match=r"all arrays to be on the same batch, got batches \[0, 1\]"
        ),
    ):
        ask(tree)
