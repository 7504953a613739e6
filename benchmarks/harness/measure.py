"""Timing of two sides in alternation, in one process, so that both see the same machine load.

A figure of a shared machine means little by itself. So each question is a comparison of two ways to do the
same work, timed as A B A B ..., and the answer is the ratio within a pair: its median, and
the interval of that.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import util
from itertools import repeat
from typing import Any, Literal, NamedTuple, TypeAlias

from benchmarks.harness.interval import Estimate, estimate

# Does the work once and returns how many units of it that was.
Work: TypeAlias = Callable[[], int]
# What pytest-benchmark's fixture is to a test here.
Benchmark: TypeAlias = Callable[..., Any]


class Sides(NamedTuple):
    """Two ways to do the same work, ready to run.

    Attributes:
        ours, theirs: the work.
        check: raises AssertionError unless both did the same.
        note: what a reader of the figures should know, such as the setting chosen for the peer.
        clock: returns the seconds that count; default those that pass.
    """

    ours: Work
    theirs: Work
    check: Callable[[], None]
    note: str = ""
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True)
class Comparison:
    """One question.

    Attributes:
        name: `question/variant`.
        what: the question in a few words, for the table.
        make: sets both sides up, and cleans up behind them.
        reads: whether a ratio says how many times faster or how many times slower ours is.
        target, aim: the ratio to reach at the least, and the one to aim for; None if none was set.
        quick: whether a quick run answers it too.
        needs: modules without which it is left out.
    """

    name: str
    what: str
    make: Callable[[], AbstractContextManager[Sides]]
    reads: Literal["faster", "slower"] = "faster"
    target: float | None = None
    aim: float | None = None
    quick: bool = True
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """Return the modules that are needed and not installed."""
        return [module for module in self.needs if util.find_spec(module) is None]

    def reaches(self, found: Estimate, goal: float | None) -> bool | None:
        """Return whether the far bound of a ratio is as good as a goal; None without one."""
        if goal is None:
            return None
        return found.reaches(goal, small_is_good=self.reads == "slower")


@dataclass(frozen=True)
class Count:
    """A question whose answer is a number that does not depend on the machine."""

    name: str
    what: str
    unit: str
    count: Callable[[], int]
    at_most: int
    aim: int


class Timing(NamedTuple):
    """One batch of repetitions."""

    seconds: float
    units: int

    @property
    def per_unit(self) -> float:
        """Return seconds per unit of work."""
        return self.seconds / self.units


class Pair(NamedTuple):
    """One batch of each side, one right after the other."""

    ours: Timing
    theirs: Timing


class Answer(NamedTuple):
    """All pairs of a comparison, and what they come to."""

    comparison: Comparison
    pairs: list[Pair]
    note: str

    @property
    def ratios(self) -> list[float]:
        """Return the ratio of each pair, read as the comparison says."""
        faster = [pair.theirs.per_unit / pair.ours.per_unit for pair in self.pairs]
        return faster if self.comparison.reads == "faster" else [1 / ratio for ratio in faster]

    @property
    def estimate(self) -> Estimate:
        """Return the median ratio and its interval."""
        return estimate(self.ratios)


def measure(comparison: Comparison, pairs: int, batch_s: float) -> Answer:
    """Time both sides in turn, `pairs` times, in batches of about `batch_s` seconds each."""
    with comparison.make() as sides:
        sides.check()
        with collector_off():
            ours = calibrate(sides.ours, batch_s)
            theirs = calibrate(sides.theirs, batch_s)
            measured = []
            for _ in range(pairs):
                gc.collect()
                pair = (
                    timed(sides.ours, ours, sides.clock),
                    timed(sides.theirs, theirs, sides.clock),
                )
                measured.append(Pair(*pair))
        return Answer(comparison, measured, sides.note)


def timed(work: Work, repetitions: int, clock: Callable[[], float] = time.perf_counter) -> Timing:
    """Repeat the work and return how long that took."""
    units = 0
    start = clock()
    for _ in repeat(None, repetitions):
        units += work()
    return Timing(clock() - start, units)


def calibrate(work: Work, batch_s: float) -> int:
    """Return how many repetitions take about `batch_s` seconds, at least one."""
    timed(work, 1)  # first calls make views and compile
    repetitions = 1
    while True:
        seconds = timed(work, repetitions).seconds
        if seconds >= batch_s / 4:
            return max(1, round(repetitions * batch_s / seconds))
        repetitions *= 4


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep the garbage collector from running inside what is timed."""
    was_on = gc.isenabled()
    gc.disable()
    # Or the collections between what is timed would look at PyTorch each time, for a quarter of a second.
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def timed_sides(comparisons: Sequence[Comparison]) -> Callable[..., None]:
    """Return a test for pytest-benchmark, which times each side of each comparison by itself."""
    # Here, as a run without pytest needs none of it.
    import pytest

    cases = [(comparison, side) for comparison in comparisons for side in ("ours", "theirs")]
    ids = [f"{comparison.name}-{side}" for comparison, side in cases]

    @pytest.mark.parametrize(("comparison", "side"), cases, ids=ids)
    def test_sides(benchmark: Benchmark, comparison: Comparison, side: str) -> None:
        run_side(benchmark, comparison, side)

    return test_sides


def run_side(benchmark: Benchmark, comparison: Comparison, side: str) -> None:
    """Hand one side to pytest-benchmark, having checked that both do the same.

    Skips, and says what to install, if it needs what is not there.
    """
    if comparison.missing:
        import pytest

        names = ", ".join(comparison.missing)
        pytest.skip(f"needs {names}: pip install '.[benchmarks]' in a checkout of parllel")
    with comparison.make() as sides:
        sides.check()
        assert benchmark(getattr(sides, side)) > 0
