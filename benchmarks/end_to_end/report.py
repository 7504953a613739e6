"""The results as JSON, as a table and as a chart."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.end_to_end.comparing import Point, learning_curve, likeness
from benchmarks.end_to_end.scenes import Goal
from benchmarks.end_to_end.training import Training
from benchmarks.harness.answers import (
    comparison_words,
    goal_words,
    met_words,
    ratios,
    table,
)
from benchmarks.harness.interval import Estimate, estimate

SIDE_HEADS = ("side", "setting", "steps/s", "sampling a batch", "learning from it")
COMPARISON_HEADS = ("", "against", "parllel is", "target (aim)", "met", "parllel's curve")


def summary(training: Training) -> dict[str, Any]:
    """Return the figures of one training; milliseconds are medians over batches but the first."""
    curve = learning_curve(training.returns, training.settings.batch_size)
    return {
        "seed": training.settings.seed,
        "start_s": round(training.start_s, 3),
        "first_batch_s": round(training.sampling_s[0] + training.learning_s[0], 3),
        "steps_per_second": round(training.steps_per_second, 1),
        "sampling_ms": round(1e3 * statistics.median(training.sampling_s[1:]), 3),
        "learning_ms": round(1e3 * statistics.median(training.learning_s[1:]), 3),
        "curve": [[point.steps, round(point.mean_return, 2)] for point in curve],
    }


def comparison(ours: Sequence[Training], theirs: Sequence[Training], goal: Goal) -> dict[str, Any]:
    """Return how we stand against one peer."""
    rates = [[training.steps_per_second for training in side] for side in (ours, theirs)]
    faster = estimate(ratios(*rates))
    alike = likeness(curves(ours), curves(theirs))
    return {
        "times_faster": {
            **faster._asdict(),
            "target": goal.target,
            "aim": goal.aim,
            "met": faster.reaches(goal.target),
            "aim_met": None if goal.aim is None else faster.reaches(goal.aim),
        },
        "learning_curves": {
            "statistic": "mean height of the curve per seed; exact two-sided permutation test",
            **alike._asdict(),
            "verdict": alike.verdict,
        },
    }


def curves(trainings: Sequence[Training]) -> list[list[Point]]:
    """Return the learning curve of each training."""
    return [learning_curve(t.returns, t.settings.batch_size) for t in trainings]


def markdown(report: Mapping[str, Any]) -> str:
    """Return the tables for docs/measured.md, with what they were measured on and the chart."""
    machine = report["machine"]
    lines = [
        f"PPO with {report['settings']['n_seeds']} seeds in turn, on {machine['cores']} cores of an "
        f"{machine['cpu']}; medians, with the least and the greatest. Overlapped, a separate process samples "
        "the next batch during learning, with weights that are one update old; its time of sampling is the "
        "time that learning waits.",
        "",
    ]
    for scene in report["scenes"]:
        settings, sides = scene["settings"], scene["sides"]
        lines += [
            f"{settings['env']}, {settings['B']} environments, {settings['T']} steps, {settings['epochs']} "
            f"epochs of {settings['minibatches']} minibatches, {settings['n_steps']:,} steps:",
            "",
            *table(SIDE_HEADS, map(_side_cells, sides.values()), "llrrr"),
            "",
            *table(
                COMPARISON_HEADS,
                [_comparison_cells(one, sides) for one in scene["comparisons"]],
            ),
            "",
        ]
    lines.append("![time per batch, and learning curves](../benchmarks/results/end_to_end.png)")
    return "\n".join(lines) + "\n"


def _side_cells(side: Mapping[str, Any]) -> list[str]:
    rate, sampling, learning = (
        statistics.median(training[name] for training in side["trainings"])
        for name in ("steps_per_second", "sampling_ms", "learning_ms")
    )
    figures = [f"{rate:,.0f}", f"{sampling:.1f} ms", f"{learning:.1f} ms"]
    return [side["title"], side["variant"], *figures]


def _comparison_cells(one: Mapping[str, Any], sides: Mapping[str, Any]) -> list[str]:
    faster, alike = one["times_faster"], one["learning_curves"]
    speed = Estimate(*(faster[name] for name in Estimate._fields))
    aim = "" if faster["aim"] is None else f" ({faster['aim']:g}x)"
    return [
        sides[one["ours"]]["title"],
        sides[one["peer"]]["title"],
        comparison_words(speed),
        f"{goal_words(faster['target'])}{aim}",
        met_words(faster["met"], faster["aim_met"]),
        f"{alike['verdict']} (p = {alike['p_value']:.2f})",
    ]


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the milliseconds of a batch, and the learning curves with the range of their seeds."""
    from matplotlib.figure import Figure

    scenes = report["scenes"]
    figure = Figure(figsize=(11, 4 * len(scenes)), layout="constrained")
    axes = figure.subplots(len(scenes), 2, squeeze=False)
    for (left, right), scene in zip(axes, scenes, strict=True):
        sides = list(scene["sides"].values())
        _draw_batches(left, sides, scene["settings"]["batch_size"])
        left.set_title(f"PPO on {scene['settings']['env']}", fontsize=11)
        for side in sides:
            draw_curves(right, side)
        right.locator_params(axis="x", nbins=5)
        right.set_xlabel("environment steps")
        right.set_ylabel("return")
        right.legend(loc="lower right", fontsize=9)
        right.set_title(f"mean and range of {report['settings']['n_seeds']} seeds", fontsize=10)
    figure.savefig(path, dpi=110)


def _draw_batches(axes: Any, sides: Sequence[Mapping[str, Any]], batch_size: int) -> None:
    sampling, learning, rates = (
        [statistics.median(training[name] for training in side["trainings"]) for side in sides]
        for name in ("sampling_ms", "learning_ms", "steps_per_second")
    )
    rows = range(len(sides))
    axes.barh(rows, sampling, color="tab:blue", label="sampling")
    axes.barh(rows, learning, left=sampling, color="tab:orange", label="learning")
    for row, rate in enumerate(rates):
        end = sampling[row] + learning[row]
        axes.annotate(f" {rate:,.0f} steps/s", (end, row), va="center", fontsize=9)
    axes.set_yticks(rows, [side["title"] for side in sides])
    axes.invert_yaxis()  # ours on top, as in the table
    axes.margins(x=0.35)
    axes.set_xlabel(f"ms per batch of {batch_size} steps")
    axes.legend(loc="upper right", fontsize=9)


def draw_curves(axes: Any, side: Mapping[str, Any]) -> None:
    """Draw the mean of a side's learning curves, with the range of its seeds."""
    seeds = [training["curve"] for training in side["trainings"]]
    n_points = min(map(len, seeds))
    steps = [point[0] for point in seeds[0][:n_points]]
    heights = [[curve[i][1] for curve in seeds] for i in range(n_points)]
    means = [statistics.fmean(values) for values in heights]
    (line,) = axes.plot(steps, means, label=side["title"])
    low, high = [min(values) for values in heights], [max(values) for values in heights]
    axes.fill_between(steps, low, high, color=line.get_color(), alpha=0.15)
