"""What is the cost of sending a slice of a registered tree, compared with pickling its arrays?

Both sides end with numpy arrays of all leaves at the receiver. Through the pipe a second process rebuilds
what it gets, reads one number of each leaf, and sends the slice back.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.measure import Comparison, Count, Sides, timed_sides
from parllel.buffers import NamedArrayTuple, allocate, buffer_asarray
from parllel.buffers.link import REGISTER, Link
from parllel.system.processes.child import Child
from parllel.types import BatchSpec

T, B, FEATURES, LEAVES = 64, 16, 17, 8
PICKLED = b"p"
CELLS = [(t, b) for t in range(0, T, 8) for b in range(0, B, 2)]
Leaves: TypeAlias = list[NDArray[np.float32]]


class Buffer(NamedTuple):
    """The tree that slices are taken of, and numpy views of its leaves."""

    tree: NamedArrayTuple
    leaves: Leaves

    def picked(self, t: int, b: int) -> Leaves:
        """Return the slice as a user without parllel would pickle it."""
        return [leaf[t, b] for leaf in self.leaves]


def make_buffer() -> Buffer:
    """Allocate 8 leaves of [T, B, 17], each cell with numbers of its own."""
    examples = {f"leaf_{i}": np.zeros(FEATURES, np.float32) for i in range(LEAVES)}
    tree = allocate(examples, BatchSpec(T, B), storage="managed")
    leaves = list(buffer_asarray(tree))
    for i, leaf in enumerate(leaves):
        leaf[:] = np.arange(leaf.size).reshape(leaf.shape) + i
    return Buffer(tree, leaves)


def rebuild(link: Link, message: bytes) -> Leaves:
    """Return the arrays of a slice that came by name."""
    return list(buffer_asarray(link.loads(message)))


def echo(connection: Connection) -> None:
    """Rebuild every slice, read one number of each leaf, send the slice back."""
    link = Link(connection)
    while message := connection.recv_bytes():
        kind = message[:1]
        if kind == REGISTER:
            link.accept(message)
        elif kind == PICKLED:
            arrays = pickle.loads(message[1:])
            _first_numbers(arrays)
            connection.send_bytes(PICKLED + pickle.dumps(arrays, pickle.HIGHEST_PROTOCOL))
        else:
            node = link.loads(message)
            _first_numbers(list(buffer_asarray(node)))
            connection.send_bytes(link.dumps(node))


def _first_numbers(arrays: Leaves) -> list[float]:
    return [array.item(0) for array in arrays]


def _sides(
    buffer: Buffer,
    by_name: Callable[[int, int], Leaves],
    by_pickle: Callable[[int, int], Leaves],
) -> Sides:
    cells = itertools.cycle(CELLS)

    def repeated(send: Callable[[int, int], Leaves]) -> Callable[[], int]:
        def work() -> int:
            _first_numbers(send(*next(cells)))
            return 1

        return work

    def check() -> None:
        for t, b in CELLS:
            expected = buffer.picked(t, b)
            np.testing.assert_array_equal(by_name(t, b), expected)
            np.testing.assert_array_equal(by_pickle(t, b), expected)

    return Sides(repeated(by_name), repeated(by_pickle), check)


@contextmanager
def rebuilding() -> Iterator[Sides]:
    """Turn a slice into bytes and back, without a pipe."""
    buffer = make_buffer()
    with _linked(buffer.tree) as (sender, receiver):

        def by_name(t: int, b: int) -> Leaves:
            return rebuild(receiver, sender.dumps(buffer.tree[t, b]))

        def by_pickle(t: int, b: int) -> Leaves:
            message = pickle.dumps(buffer.picked(t, b), pickle.HIGHEST_PROTOCOL)
            return pickle.loads(message)  # type: ignore[no-any-return]

        yield _sides(buffer, by_name, by_pickle)


@contextmanager
def through_a_pipe() -> Iterator[Sides]:
    """Send a slice to another process and get it back."""
    buffer = make_buffer()
    child = Child(echo, name="echo")
    try:
        connection = child.connection
        link = Link(connection, child)

        def by_name(t: int, b: int) -> Leaves:
            child.send_bytes(link.dumps(buffer.tree[t, b]))
            return rebuild(link, child.receive(30.0, "echoing"))

        def by_pickle(t: int, b: int) -> Leaves:
            arrays = buffer.picked(t, b)
            child.send_bytes(PICKLED + pickle.dumps(arrays, pickle.HIGHEST_PROTOCOL))
            return pickle.loads(child.receive(30.0, "echoing")[1:])  # type: ignore[no-any-return]

        yield _sides(buffer, by_name, by_pickle)
        child.send_bytes(b"")
        child.end()
    finally:
        child.kill()


def message_bytes() -> int:
    """Return the size of the message for one slice, the largest of all cells."""
    buffer = make_buffer()
    with _linked(buffer.tree) as (sender, _):
        return max(len(sender.dumps(buffer.tree[t, b])) for t in range(T) for b in range(B))


@contextmanager
def _linked(tree: NamedArrayTuple) -> Iterator[tuple[Link, Link]]:
    """Yield two links that know the tree."""
    mine, theirs = Pipe()
    with mine, theirs:
        sender, receiver = Link(mine), Link(theirs)
        sender.register(tree)
        receiver.accept(theirs.recv_bytes())
        yield sender, receiver


COMPARISONS = [
    Comparison(
        "registered_send/rebuild",
        "slice of 8 registered leaves to bytes and back, read, against pickle",
        rebuilding,
        target=1.5,
        aim=3.0,
    ),
    Comparison(
        "registered_send/pipe",
        "the same through a pipe to a process and back, against pickle",
        through_a_pipe,
        target=1.5,
        aim=3.0,
    ),
]
COUNTS = [
    Count(
        "registered_send/bytes",
        "message for a slice of 8 registered leaves",
        unit="B",
        count=message_bytes,
        at_most=100,
        aim=60,
    )
]

test_registered_send = timed_sides(COMPARISONS)


def test_message_is_small() -> None:
    """Bytes do not depend on the machine, so this one can fail."""
    (question,) = COUNTS
    assert question.count() <= question.at_most
