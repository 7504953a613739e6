"""What is the cost of waiting for whichever of 16 environments replies first?

CPU time is that of the waits alone, against the time that passes for as many rows: 20 times less is a
twentieth of a core. The time that a wait adds is measured with one environment that answers at once, beside
15 that do not, against `finish_row` of that one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.cages import CageInterface, PendingRows, ProcessCage, SynchronizedProcessCage
from parllel.testing import CountingEnv
from parllel.testing.cages.row_reference import make_samples

N, TIMEOUT_S, ROWS = 16, 30.0, 8
BUSY_S, BLOCKED_S = (1e-3, 20e-3), (0.1, 0.2)  # the shortest and the longest step


class SleepingEnv(CountingEnv):
    """Sleeps in each step."""

    def __init__(self, seed: int, least_s: float, most_s: float) -> None:
        super().__init__(1_000_000)
        self._naps, self._limits = random.Random(seed), (least_s, most_s)

    def step(self, action: Any) -> Any:
        """Sleep and step."""
        time.sleep(self._naps.uniform(*self._limits))
        return super().step(action)


def make_cage(kind: str, i: int, limits_s: tuple[float, float]) -> CageInterface:
    """Make a cage of one environment in a process."""

    def make_env() -> SleepingEnv:
        return SleepingEnv(i, *limits_s)

    # Forks, as their start is not measured, and 16 processes would import numba otherwise.
    if kind == "pipes" or (kind == "mixed" and i % 2):
        return ProcessCage(make_env, seed=i, index=i, start_method="fork")
    return SynchronizedProcessCage([make_env], n_workers=1, seeds=[i], index=i, start_method="fork")


def start(cages: list[CageInterface]) -> None:
    """Bind the cages, reset them, and start a step of each."""
    samples = make_samples(CountingEnv(), ROWS, N, storage="managed")
    for i, cage in enumerate(cages):
        cage.set_samples_buffer(samples, slice(i, i + 1))
        cage.start_reset(0)
    for cage in cages:
        cage.finish_row()
        cage.start_row(0)


class Loop:
    """Finish rows that are done and start the next, and count seconds of two kinds.

    Attributes:
        counted_s: CPU time of the waits, or all the time that passed, as the loop was run.
    """

    def __init__(self, cages: list[CageInterface]) -> None:
        self.cages = cages
        self.counted_s = 0.0
        self.awaited: PendingRows[int] = PendingRows()
        for i, cage in enumerate(cages):
            self.awaited.add(i, cage)

    def by_cpu(self) -> int:
        """Go round once; count the CPU time of waiting."""
        done = self._counted(self._wait)
        self._go_on(done)
        self._counted(lambda: self._add(done))
        return len(done)

    def by_time(self) -> int:
        """Go round once; count the time that passes."""
        began = time.perf_counter()
        done = self._wait()
        self._go_on(done)
        self._add(done)
        self.counted_s += time.perf_counter() - began
        return len(done)

    def _wait(self) -> list[int]:
        return self.awaited.wait(TIMEOUT_S)

    def _add(self, done: list[int]) -> list[int]:
        for i in done:
            self.awaited.add(i, self.cages[i])
        return done

    def _go_on(self, done: list[int]) -> None:
        if not done:
            raise RuntimeError(f"no environment answered within {TIMEOUT_S:g} s")
        for i in done:
            self.cages[i].finish_row()
            self.cages[i].start_row(0)

    def _counted(self, work: Callable[[], list[int]]) -> list[int]:
        began = time.process_time()
        done = work()
        self.counted_s += time.process_time() - began
        return done


def cpu(kind: str, limits_s: tuple[float, float]) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up a loop, whose time is counted in either way."""

    @contextmanager
    def make() -> Iterator[Sides]:
        with ExitStack() as stack:
            cages = [stack.enter_context(make_cage(kind, i, limits_s)) for i in range(N)]
            start(cages)
            loop = Loop(cages)

            def check() -> None:
                assert loop.by_cpu() > 0
                assert loop.by_time() > 0

            note = f"steps take {limits_s[0] * 1e3:g} to {limits_s[1] * 1e3:g} ms"
            yield Sides(loop.by_cpu, loop.by_time, check, note, clock=lambda: loop.counted_s)

    return make


def added_time(kind: str) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up one environment that answers at once, beside others that do not."""

    @contextmanager
    def make() -> Iterator[Sides]:
        with ExitStack() as stack:
            limits_s = [(0.0, 0.0)] + [(TIMEOUT_S, TIMEOUT_S)] * (N - 1)
            cages = [stack.enter_context(make_cage(kind, i, limits_s[i])) for i in range(N)]
            start(cages)
            first, awaited = cages[0], PendingRows[int]()
            for i, cage in enumerate(cages):
                awaited.add(i, cage)
            if awaited.wait(TIMEOUT_S) != [0]:
                raise RuntimeError("environment 0: expected its answer first")
            first.finish_row()

            def ours() -> int:
                first.start_row(0)
                awaited.add(0, first)
                done = awaited.wait(TIMEOUT_S)
                first.finish_row()
                return len(done)

            def theirs() -> int:
                first.start_row(0)
                first.finish_row()
                return 1

            def check() -> None:
                assert ours() == theirs() == 1

            yield Sides(ours, theirs, check)

    return make


KINDS = {"pipes": "over pipes", "words": "over words", "mixed": "half over pipes, half over words"}
COMPARISONS = [
    *(
        Comparison(
            f"awaited_rows/cpu-{kind}",
            f"CPU time of waits for {N} environments of 1 to 20 ms {words}, against the time that passes",
            cpu(kind, BUSY_S),
            target=20.0,
            aim=40.0,
            quick=False,
        )
        for kind, words in KINDS.items()
    ),
    Comparison(
        "awaited_rows/cpu-blocked",
        f"the same, {N} environments of 100 to 200 ms half over pipes, half over words",
        cpu("mixed", BLOCKED_S),
        target=20.0,
        aim=40.0,
        quick=False,
    ),
    *(
        Comparison(
            f"awaited_rows/time-{kind}",
            f"row {KINDS[kind]}, awaited among {N}, against finish_row alone",
            added_time(kind),
            reads="slower",
            quick=kind == "words",
        )
        for kind in ("pipes", "words")
    ),
]

test_pending_rows = timed_sides(COMPARISONS)
