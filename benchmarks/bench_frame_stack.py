"""What are the savings and the cost of storing each frame of a stack only once?

A Pong batch: T = 64 rows of B = 16 stacks of 4 grey pictures, 84 x 84. The other side stores whole stacks in
a RotatingArray, through views that are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.measure import Comparison, Count, Sides, timed_sides
from parllel.arrays import LazyFramesArray, RotatingArray

T, B, K, FRAME = 64, 16, 4, (84, 84)
MINIBATCH = 256
Stacks: TypeAlias = NDArray[np.uint8]


class Store(NamedTuple):
    """One side: the cells to write, the rows that an agent reads, and how a minibatch is drawn."""

    cells: list[list[Any]]
    rows: list[Stacks]
    draw: Callable[[NDArray[Any], NDArray[Any], Stacks], Any]


def make_stacks() -> Stacks:
    """Return [T, B, K, *FRAME] of episodes that never end, as a wrapper would hand them over."""
    frames = np.random.default_rng(0).integers(0, 255, (T, B, *FRAME), np.uint8)
    return np.stack([frames[np.maximum(np.arange(T) - back, 0)] for back in (3, 2, 1, 0)], axis=2)


def lazy_store() -> Store:
    """Return the side that stores frames."""
    array = LazyFramesArray((T, B, K, *FRAME), np.uint8)
    rows = [array.writers(t, slice(0, B)) for t in range(T)]
    cells = [[row[b, ...] for b in range(B)] for row in rows]
    return Store(cells, [array.staged()] * T, array.gather)


def whole_store() -> Store:
    """Return the side that stores stacks."""
    array = RotatingArray((T, B, K, *FRAME), np.uint8)
    rows = [np.asarray(array[t]) for t in range(T)]
    stacks = np.asarray(array)

    def draw(at: NDArray[Any], columns: NDArray[Any], out: Stacks) -> None:
        out[...] = stacks[at, columns]

    return Store([[row[b, ...] for b in range(B)] for row in rows], rows, draw)


def write(store: Store, stacks: Stacks, target: Stacks) -> int:
    """Write a batch as cages do, cell by cell."""
    for cells, row in zip(store.cells, stacks, strict=True):
        for cell, stack in zip(cells, row, strict=True):
            cell[...] = stack
    return T * B


def write_and_act(store: Store, stacks: Stacks, target: Stacks) -> int:
    """Write a batch, and copy each row as an agent would to its device."""
    for cells, row, seen in zip(store.cells, stacks, store.rows, strict=True):
        for cell, stack in zip(cells, row, strict=True):
            cell[...] = stack
        np.copyto(target[:B], seen)
    return T * B


def minibatches(store: Store, stacks: Stacks, target: Stacks) -> int:
    """Draw all cells once, in random order."""
    order = np.random.default_rng(1).permutation(T * B)
    for chosen in order.reshape(-1, MINIBATCH):
        store.draw(*np.divmod(chosen, B), target)
    return T * B


@contextmanager
def against_whole(work: Callable[[Store, Stacks, Stacks], int]) -> Iterator[Sides]:
    """Do the same with frames stored once (ours) and with stored stacks (theirs)."""
    stacks = make_stacks()
    ours, theirs = lazy_store(), whole_store()
    targets = [np.zeros((MINIBATCH, K, *FRAME), np.uint8) for _ in range(2)]
    for store, target in zip((ours, theirs), targets, strict=True):
        write(store, stacks, target)

    def check() -> None:
        for store, target in zip((ours, theirs), targets, strict=True):
            work(store, stacks, target)
        np.testing.assert_array_equal(targets[0], targets[1])

    sides = [
        partial(work, store, stacks, target)
        for store, target in zip((ours, theirs), targets, strict=True)
    ]
    yield Sides(sides[0], sides[1], check)


COMPARISONS = [
    Comparison(f"frame-stack/{name}", what, partial(against_whole, work), reads="slower")
    for name, what, work in (
        ("write", "write stacks of 4 frames, each frame stored once, against whole stacks", write),
        ("act", "the same, with each row read by an agent", write_and_act),
        ("minibatch", "draw minibatches of 256 stacks from frames, against stacks", minibatches),
    )
]

COUNTS = [
    Count(
        "frame-stack/bytes",
        "memory for a step of Pong, 4 frames of 84 x 84, all bookkeeping included",
        "bytes",
        lambda: LazyFramesArray((T, B, K, *FRAME), np.uint8).block.nbytes // (T * B),
        at_most=int(K * 84 * 84 / 3.5),
        aim=int(K * 84 * 84 / 3.5),
    )
]

test_frame_stack = timed_sides(COMPARISONS)


def test_bytes() -> None:
    """Count the bytes of a step."""
    (question,) = COUNTS
    assert question.count() <= question.at_most
