"""A picture of an experiment's results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from parllel.distributed.operators.experiments.intervals import Mean
from parllel.distributed.operators.experiments.results import GroupResult
from parllel.errors import install_command


def draw_results(path: str | os.PathLike[str], groups: Sequence[GroupResult]) -> None:
    """Draw the mean return of each operator, and the differences, with their intervals.

    path: its ending is the format, such as .png or .svg.

    Raises:
        ImportError: without matplotlib; names the extra.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f"drawing results needs matplotlib: {install_command('plot')} ({error})"
        ) from error
    heights = [1 + max(len(group.operators), len(group.differences)) for group in groups]
    figure = Figure(figsize=(10, 1 + 0.45 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(len(groups), 2, squeeze=False, height_ratios=heights)
    for (left, right), group in zip(axes, groups, strict=True):
        rewards = {
            f"{one.operator_id} ({one.failed} failed)"
            if one.failed
            else one.operator_id: one.total_reward
            for one in group.operators
        }
        _draw(left, group.label, "total reward, mean and 95 % interval", rewards)
        if not group.differences:
            right.set_axis_off()
            continue
        differences = {
            f"{one.operator_id} - {one.against}": one.total_reward for one in group.differences
        }
        corrected = ", corrected" if group.differences[0].comparisons > 1 else ""
        label = f"difference, mean and 95 % interval{corrected}"
        _draw(right, "paired differences", label, differences)
        right.axvline(0.0, color="0.6", linewidth=1)
    figure.savefig(path, dpi=100)


def _draw(axes: Any, title: str, label: str, means: dict[str, Mean]) -> None:
    # Names of operators are not TeX, even if they contain dollar signs.
    axes.set_title(title, fontsize="medium", parse_math=False)
    axes.set_xlabel(label, fontsize="small")
    axes.set_yticks(range(len(means)), list(means), parse_math=False)
    axes.set_ylim(len(means) - 0.5, -0.5)
    axes.grid(alpha=0.3, axis="x")
    for row, mean in enumerate(means.values()):
        if mean.mean is None:
            continue
        low = mean.mean if mean.low is None else mean.low
        high = mean.mean if mean.high is None else mean.high
        # Rounding may put an end of the interval on the wrong side by a bit.
        spread = [[max(0.0, mean.mean - low)], [max(0.0, high - mean.mean)]]
        axes.errorbar([mean.mean], [row], xerr=spread, fmt="o", capsize=3, color="C0")
