"""What is the CPU time of a fragment on Ray, from a worker to the trainer, in all processes together?

The producer packs fragments that it has, and the trainer has them in its own memory at the end. `packed` is
the way of small fragments for all sizes: pickled bytes through the buffer's actor. `references` is the least
that Ray needs: the producer puts the arrays of a fragment into the object store, an actor passes the
references on, and the trainer copies the arrays out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal

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
        if buffer is not None:
            buffer.offer_from_here()

    def add(self, n: int) -> None:
        """Add `n` fragments."""
        left = [replace(self._fragment, sequence=self._n + i) for i in range(n)]
        self._n += n
        while left:
            left = left[self._buffer.add(left, WAIT_S) :]

    def contents(self, keys: Any) -> list[Any]:
        """Return the content of fragments that are offered."""
        return [None, *self._buffer.contents(keys)]

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


class Through:
    """Fragments through a buffer."""

    def __init__(self, stack: ExitStack, size: str, large_bytes: int) -> None:
        from parllel.distributed.rollouts.on_ray import RayReplayBuffer

        self.n, shape, length = SIZES[size]
        self._buffer = stack.enter_context(RayReplayBuffer(self.n, large_bytes=large_bytes))
        self._producer = start(Producer, self._buffer, shape, length)

    def __call__(self) -> list[SampleFragment]:
        """Return the fragments of a turn."""
        self._producer.add.remote(self.n)
        return self._buffer.fetch(self.n, WAIT_S)


class References:
    """Fragments as references, with no buffer."""

    def __init__(self, size: str) -> None:
        self.n, shape, length = SIZES[size]
        self._producer, self._keeper = start(Producer, None, shape, length), start(Keeper)

    def __call__(self) -> list[SampleFragment]:
        """Return the fragments of a turn."""
        import ray

        from parllel.distributed.rollouts.on_ray.large_fragments import FragmentContent

        ray.get(self._producer.put.remote(self._keeper, self.n))
        found = []
        for header, reference in ray.get(self._keeper.fetch.remote(self.n)):
            content = FragmentContent(header, ray.get(reference))
            found.append(content.copy().unpack())
        return found


def start(kind: type, *arguments: Any) -> Any:
    """Start an actor, as the parts of rollouts are started."""
    import ray

    options = {"num_cpus": 0, "max_concurrency": 2, "enable_task_events": False}
    return ray.remote(kind).options(**options).remote(*arguments)


@contextmanager
def beside(size: str, other: str) -> Iterator[Sides]:
    """Send fragments of a size, and the same in another way."""
    from parllel.distributed.rollouts.on_ray import RaySession
    from parllel.distributed.rollouts.on_ray.ray_replay_buffer import LARGE_BYTES

    with ExitStack() as stack:
        stack.enter_context(RaySession(num_cpus=2))
        ours = Through(stack, size, LARGE_BYTES)
        theirs = References(size) if other == "references" else Through(stack, size, NEVER)

        def check() -> None:
            expected = make_fragment(*SIZES[size][1:]).env.observation
            for side in (ours, theirs):
                fragments = side()
                assert len(fragments) == ours.n
                for fragment in fragments:
                    np.testing.assert_array_equal(fragment.env.observation, expected)

        check()
        # Without Ray's idle workers, which end at any time.
        pids = [pid for pid, title in descendants(os.getpid()).items() if "IDLE" not in title]
        yield Sides(
            lambda: len(ours()),
            lambda: len(theirs()),
            check,
            clock=lambda: sum(map(cpu_s, pids)),
        )


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

test_ray_fragments = timed_sides(COMPARISONS)
