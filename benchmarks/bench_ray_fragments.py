"""What is the CPU time of a fragment on Ray, from a worker to the trainer's batch, in all processes together?

The producer has the fragments of a turn, and at the end the trainer has copied them into a batch. `packed` is
the way of small fragments for all sizes: pickled bytes through the buffer's actor. `references` is what Ray
alone needs: the producer puts the arrays of a fragment into the object store, an actor passes the references
on, and the trainer copies the arrays into the batch.

    FRAGMENTS_BEFORE=CHECKOUT python benchmarks/run.py --only fragments_before

compares with the buffer of another checkout of this repository, in a process that works when it is told to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.harness.machine import cpu_s, descendants
from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.distributed.rollouts import FragmentCutter, SampleFragment, StepRecord

# Fragments in a turn, shape of an observation, steps of a fragment.
SIZES: dict[str, tuple[int, tuple[int, ...], int]] = {
    "2 kB": (32, (4,), 64),
    "1.4 MB": (8, (84, 84, 4), 50),
    "12 MB": (2, (128, 128, 3), 256),
}
NEVER = 2**60
WAIT_S = 60.0


def make_fragment(shape: Sequence[int], length: int) -> SampleFragment:
    """Return a fragment with observations of this shape: images, or vectors of floats."""
    from parllel.buffers import NamedTuple

    rng, cutter = np.random.default_rng(0), FragmentCutter(length, producer="producer")
    for number in range(length):
        observation = (
            rng.integers(0, 256, shape, np.uint8)
            if len(shape) > 1
            else rng.random(shape, np.float32)
        )
        info = NamedTuple(log_prob=np.float32(number), value=np.float32(number))
        found = cutter.add_step(
            StepRecord(
                0,
                observation,
                np.int64(number % 7),
                info,
                np.float32(number),
                False,
                False,
                observation,
                0,
            )
        )
    assert found is not None
    return found


class Producer:
    """An actor that adds the same fragment under new numbers."""

    def __init__(self, buffer: Any, shape: Sequence[int], length: int) -> None:
        self._buffer, self._n = buffer, 0
        self._fragment = make_fragment(shape, length)
        # Neither without a buffer, nor in older checkouts.
        if hasattr(buffer, "offer_from_here"):
            buffer.offer_from_here()

    def add(self, n: int) -> None:
        """Add `n` fragments."""
        left = [replace(self._fragment, sequence=self._n + i) for i in range(n)]
        self._n += n
        while left:
            left = left[self._buffer.add(left, WAIT_S) :]

    def contents(self, keys: Any) -> list[Any]:
        """Return the content of fragments that are offered."""
        found: list[Any] = self._buffer.contents(keys)
        return found

    def put(self, keeper: Any, n: int) -> None:
        """Put the arrays of `n` fragments, and pass the references on."""
        import ray

        from parllel.distributed.rollouts.on_ray.large_fragments import FragmentContent

        references = []
        for _ in range(n):
            content = FragmentContent.of(self._fragment, 4096)
            references.append((content.header, ray.put(content.arrays)))
        ray.get(keeper.add.remote(references))


class Keeper:
    """An actor that keeps references."""

    def __init__(self) -> None:
        self._references: list[Any] = []

    async def add(self, references: list[Any]) -> None:
        """Keep references."""
        self._references += references

    async def fetch(self, n: int) -> list[Any]:
        """Return the oldest `n` references, and drop them."""
        found, self._references = self._references[:n], self._references[n:]
        return found


class Batch:
    """The memory into which the trainer copies the fragments of a turn."""

    def __init__(self, size: str) -> None:
        self.n, shape, length = SIZES[size]
        one = leaves(make_fragment(shape, length))
        self.columns = [[np.zeros_like(leaf) for leaf in one] for _ in range(self.n)]
        self._expected = one

    def fill(self, fragments: Sequence[SampleFragment]) -> None:
        """Copy fragments."""
        for column, fragment in zip(self.columns, fragments, strict=True):
            for into, leaf in zip(column, leaves(fragment), strict=True):
                into[...] = leaf

    def check(self) -> None:
        """Raise AssertionError unless each column holds the producer's fragment."""
        for column in self.columns:
            for leaf, expected in zip(column, self._expected, strict=True):
                np.testing.assert_array_equal(leaf, expected)


class Through:
    """Fragments through a buffer.

    arguments: further arguments of the buffer, which another checkout may not know.
    """

    def __init__(self, stack: ExitStack, size: str, **arguments: Any) -> None:
        from parllel.distributed.rollouts.on_ray import RayReplayBuffer

        self.n, shape, length = SIZES[size]
        self.batch = Batch(size)
        self._buffer = stack.enter_context(RayReplayBuffer(self.n, **arguments))
        self._producer = start(Producer, self._buffer, shape, length)

    def turn(self) -> None:
        """Move the fragments of a turn into the batch."""
        self._producer.add.remote(self.n)
        self.batch.fill(self._buffer.borrow(self.n, WAIT_S))

    def check(self) -> None:
        """Raise AssertionError unless all fragments arrived as they were sent."""
        self.batch.check()


class Side(NamedTuple):
    """A way of the fragments of a turn into a batch, and the check of what is in it."""

    turn: Callable[[], Any]
    check: Callable[[], None]


class References:
    """Fragments as references, with no buffer."""

    def __init__(self, size: str) -> None:
        self.n, shape, length = SIZES[size]
        self.batch = Batch(size)
        self._producer, self._keeper = start(Producer, None, shape, length), start(Keeper)

    def turn(self) -> None:
        """Move the fragments of a turn into the batch."""
        import ray

        from parllel.distributed.rollouts.on_ray.large_fragments import FragmentContent

        ray.get(self._producer.put.remote(self._keeper, self.n))
        self.batch.fill(
            [
                FragmentContent(header, ray.get(reference)).unpack()
                for header, reference in ray.get(self._keeper.fetch.remote(self.n))
            ]
        )

    def check(self) -> None:
        """Raise AssertionError unless all fragments arrived as they were sent."""
        self.batch.check()


def leaves(fragment: SampleFragment) -> list[Any]:
    """Return the arrays of a fragment that go into a batch."""
    from parllel.buffers.tree import buffer_leaves

    return [leaf for part in (fragment.env, fragment.agent) for _, leaf in buffer_leaves(part)]


def start(kind: type, *arguments: Any) -> Any:
    """Start an actor, as the parts of rollouts are started."""
    import ray

    options = {"num_cpus": 0, "max_concurrency": 2, "enable_task_events": False}
    return ray.remote(kind).options(**options).remote(*arguments)


@contextmanager
def beside(size: str, other: str) -> Iterator[Sides]:
    """Send fragments of a size, and the same in another way."""
    from parllel.distributed.rollouts.on_ray import RaySession

    with ExitStack() as stack:
        stack.enter_context(RaySession(num_cpus=2))
        ours = Through(stack, size)
        theirs = (
            References(size) if other == "references" else Through(stack, size, large_bytes=NEVER)
        )
        yield both(ours, theirs)


def both(ours: Through, theirs: Through | References | Side) -> Sides:
    """Return both sides, whose processes run."""

    def check() -> None:
        for side in (ours, theirs):
            side.turn()
            side.check()

    def turn(side: Through | References | Side) -> int:
        side.turn()
        return ours.n

    check()
    # Without Ray's idle workers, which end at any time.
    pids = [pid for pid, title in descendants(os.getpid()).items() if "IDLE" not in title]
    return Sides(
        partial(turn, ours),
        partial(turn, theirs),
        check,
        clock=lambda: sum(map(cpu_s, pids)),
    )


# ---------------------------------------------------------------------- another checkout


def turn_when_told(size: str) -> None:
    """Move the fragments of a turn for each line of standard input, and answer with a line."""
    from parllel.distributed.rollouts.on_ray import RaySession

    with ExitStack() as stack:
        stack.enter_context(RaySession(num_cpus=2))
        side = Through(stack, size)
        side.turn()
        side.check()
        for _ in sys.stdin:
            side.turn()
            print("done", flush=True)


@contextmanager
def against_before(checkout: str, size: str) -> Iterator[Sides]:
    """Send fragments with this code, and with that of another checkout."""
    # Not above: the other checkout runs this file too, and may not have it.
    from benchmarks.harness.other_checkout import OtherCheckout
    from parllel.distributed.rollouts.on_ray import RaySession

    with ExitStack() as stack:
        other = stack.enter_context(
            OtherCheckout(checkout, __file__, turn_when_told.__name__, size)
        )
        stack.enter_context(RaySession(num_cpus=2))
        # Its own process checks the first batch.
        yield both(Through(stack, size), Side(other.turn, lambda: None))


_QUESTIONS: tuple[tuple[str, str, str, Literal["faster", "slower"], float, float], ...] = (
    ("2 kB", "packed", "packed ones (the same way)", "slower", 1.1, 1.02),
    ("1.4 MB", "packed", "packed ones", "faster", 5.0, 8.0),
    ("1.4 MB", "references", "bare references with one copy", "slower", 1.3, 1.1),
    ("12 MB", "packed", "packed ones", "faster", 5.0, 8.0),
    ("12 MB", "references", "bare references with one copy", "slower", 1.3, 1.1),
)
COMPARISONS = [
    Comparison(
        f"ray-fragments/{size.replace(' ', '-')}-{other}",
        f"CPU of a fragment of {size} on Ray, against {what}",
        partial(beside, size, other),
        reads,
        target,
        aim,
        quick=False,
        needs=("ray",),
    )
    for size, other, what, reads, target, aim in _QUESTIONS
]
BEFORE = os.environ.get("FRAGMENTS_BEFORE")
COMPARISONS += [
    Comparison(
        f"fragments_before/{size.replace(' ', '-')}",
        f"CPU of a fragment of {size} on Ray, against the other checkout",
        partial(against_before, BEFORE, size),
        "faster",
        target,
        quick=False,
        needs=("ray",),
    )
    for size, target in (("2 kB", 1.0), ("1.4 MB", 5.0), ("12 MB", 5.0))
    if BEFORE is not None
]

test_ray_fragments = timed_sides(COMPARISONS)
