"""Decide when to record videos, from the number of environment steps and a count from 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

# Takes the number of environment steps so far, and the number of the evaluation or batch, from 0.
RecordingSchedule: TypeAlias = Callable[[int, int], bool]


def capped_cubic(elapsed_steps: int, number: int) -> bool:
    """Record numbers 0, 1, 8, 27, ... and from 1000 on every 1000th: often early, when much changes.

    This is Gymnasium's `capped_cubic_video_schedule`.
    """
    if number >= 1000:
        return number % 1000 == 0
    # Rounded, as floating point has no exact cube roots: 64 ** (1 / 3) is below 4.
    root: int = round(number ** (1 / 3))
    return root**3 == number


@dataclass(frozen=True)
class EveryNth:
    """The schedule that `every_nth` returns; a class, as functions inside functions cannot be pickled."""

    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise ValueError(f"every_nth: n: expected an int of at least 1, got {self.n!r}")

    def __call__(self, elapsed_steps: int, number: int) -> bool:
        """Return whether `number` is a multiple of n."""
        return number % self.n == 0


def every_nth(n: int) -> RecordingSchedule:
    """Record numbers 0, n, 2n, ...; ValueError unless `n` is an int of at least 1."""
    return EveryNth(n)
