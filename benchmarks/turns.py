"""Several ways to do the same work, each for a moment in turn, in each of several rounds."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol


class Work(Protocol):
    """Something to repeat."""

    def __call__(self) -> int:
        """Do some, and return how many units that was."""
        ...

    def close(self) -> None:
        """Give up what it holds."""
        ...


class Turns(Protocol):
    """How long to measure: a frozen dataclass."""

    @property
    def rounds(self) -> int:
        """Turns of each side."""
        ...

    @property
    def turn_s(self) -> float:
        """Seconds of a side in a round."""
        ...


@contextlib.contextmanager
def opened(sides: Mapping[str, Callable[[], Work]]) -> Iterator[dict[str, Work]]:
    """Make all sides, and close them."""
    with contextlib.ExitStack() as stack:
        works = {}
        for name, make in sides.items():
            works[name] = make()
            stack.callback(works[name].close)
        gc.collect()
        gc.freeze()  # or each collection looks at the other sides' environments too
        stack.callback(gc.unfreeze)
        yield works


def in_turn(
    effort: Turns,
    works: Mapping[str, Work],
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Return the seconds of a unit of each work, a value for each round."""
    for work in works.values():
        seconds_per_unit(work, effort.turn_s / 4, clock)
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(effort.rounds):
        for name, work in works.items():
            found[name].append(seconds_per_unit(work, effort.turn_s, clock))
    return found


def seconds_per_unit(
    work: Callable[[], int], turn_s: float, clock: Callable[[], float] = time.process_time
) -> float:
    """Return how many seconds a unit of work takes, from doing it for about `turn_s`.

    work: does some, and returns how many units that was.
    """
    units, began = 0, clock()
    while True:
        units += work()
        passed = clock() - began
        if passed >= turn_s:
            return passed / units
