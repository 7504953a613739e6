"""Timing of several sides in turn, a short slice each, over several rounds."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

KeyT = TypeVar("KeyT")
SideT = TypeVar("SideT")


@dataclass(frozen=True)
class Effort:
    """How long to measure; benchmarks add what else they repeat.

    Attributes:
        rounds: turns of each side.
        turn_s: of a side in a round.
    """

    rounds: int
    turn_s: float


class Work(Protocol):
    """Something to repeat."""

    def __call__(self) -> int:
        """Do some, and return how many units that was."""
        ...

    def close(self) -> None:
        """Give up what it holds."""
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


def in_rounds(
    rounds: int, sides: Mapping[KeyT, SideT], turn: Callable[[SideT], float]
) -> dict[KeyT, list[float]]:
    """Return the figure of each side's turn, a value for each round; the sides take turns within a round."""
    found: dict[KeyT, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            found[name].append(turn(side))
    return found


def in_turn(
    effort: Effort,
    works: Mapping[str, Work],
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Return the seconds of a unit of each work, a value for each round."""
    for work in works.values():
        seconds_per_unit(work, effort.turn_s / 4, clock)
    return in_rounds(
        effort.rounds, works, lambda work: seconds_per_unit(work, effort.turn_s, clock)
    )


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
