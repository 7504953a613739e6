"""How far two sides with some seeds each are apart, and no more than their number allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.end_to_end.comparing import (
    Point,
    difference_interval,
    least_p_value,
    likeness,
    permutation_p_value,
)

LEAST_SEEDS = 2  # of each side
LEVEL = 0.05

Trainings = Sequence[Mapping[str, Any]]


def comparison(ours: Trainings, theirs: Trainings, interval_steps: int) -> dict[str, Any] | None:
    """Return the difference of the mean returns, and how alike the curves are.

    The curves are None if one of them is empty. The interval of 95 % is None where the permutation test
    cannot reject anything at 5 %, which takes four seeds a side. None altogether with fewer than two seeds a
    side.

    interval_steps: between the points of a curve, which lacks those in which no episode ended.
    """
    n = [len(side) for side in (ours, theirs)]
    if min(n) < LEAST_SEEDS:
        return None
    means = [[training["mean"] for training in side] for side in (ours, theirs)]
    least = least_p_value(*n)
    interval = None
    if least <= LEVEL:
        interval = [round(end, 3) for end in difference_interval(means[0], means[1])]
    curves = [
        [filled(training["curve"], interval_steps) for training in side] for side in (ours, theirs)
    ]
    alike = likeness(*with_same_steps(curves))._asdict() if all(map(all, curves)) else None
    return {
        "difference": round(sum(means[0]) / n[0] - sum(means[1]) / n[1], 3),
        "interval": interval,
        "p_value": permutation_p_value(*means),
        "least_p_value": least,
        "learning_curves": alike,
    }


def filled(curve: Sequence[Sequence[float]], interval_steps: int) -> list[Point]:
    """Return a curve with the value before it where a point is missing."""
    points: list[Point] = []
    for steps, mean in curve:
        while points and points[-1].steps + interval_steps < steps:
            points.append(Point(points[-1].steps + interval_steps, points[-1].mean_return))
        points.append(Point(int(steps), mean))
    return points


def with_same_steps(sides: Sequence[Sequence[Sequence[Point]]]) -> list[list[list[Point]]]:
    """Return the curves of some sides from the first step on at which all have a point; none may be empty."""
    first = max(curve[0].steps for side in sides for curve in side)
    return [[[point for point in curve if point.steps >= first] for curve in c] for c in sides]
