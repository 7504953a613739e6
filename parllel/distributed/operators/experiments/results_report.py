"""An experiment's results for people: as tables of text, and as a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parllel.distributed.operators.experiments.intervals import ConfidenceInterval
from parllel.distributed.operators.experiments.results import (
    Difference,
    GroupResult,
    OperatorResult,
)
from parllel.errors import install_command

_WIDTH = 200  # characters, of what is written to a file or a pipe


def print_results(groups: Sequence[GroupResult], console: Console) -> None:
    """Print the operators of each group, then their differences."""
    for group in groups:
        console.print(f"[bold]{escape(group.label)}[/]", highlight=False)
        console.print(_operators(group.operators))
        if group.differences:
            console.print(_differences(group.differences))
        for said in group.sentences:
            console.print(said, markup=False, highlight=False, soft_wrap=True)
        console.print()


def results_console(*, is_seen: bool) -> Console:
    """Return a console for standard output; rich would wrap for a pipe what `grep` reads."""
    return Console(width=None if is_seen else _WIDTH)


def _operators(operators: Sequence[OperatorResult]) -> Table:
    table = _table("operator", "episodes", "failed", "reward [95 %]", "length [95 %]")
    columns = {
        "success % [95 %]": any(one.success for one in operators),
        "understood %": any(one.decisions for one in operators),
        "tokens": any(one.tokens for one in operators),
        "cost": any(one.cost for one in operators),
        "total cost": any(one.cost for one in operators),
    }
    for name in (*(name for name, shown in columns.items() if shown), "median ms", "p95 ms"):
        table.add_column(escape(name), justify="right", no_wrap=True)
    for one in operators:
        cells = [
            escape(one.operator_id),
            f"{one.ended}/{one.asked}",
            str(one.failed),
            _with_interval(one.total_reward),
            _with_interval(one.length),
        ]
        if columns["success % [95 %]"]:
            cells.append("" if one.success is None else _percent(one.success))
        if columns["understood %"]:
            cells.append("" if one.understood is None else f"{100 * one.understood:.3g}")
        if columns["tokens"]:
            cells.append("" if one.tokens is None else f"{one.tokens.mean or 0:,.0f}")
        if columns["cost"]:
            cells.append("" if one.cost is None else f"{one.cost.mean or 0:.4g}")
            cells.append("" if one.total_cost is None else f"{one.total_cost:.4g}")
        latency = one.latency_s
        cells.append("" if latency is None else f"{1000 * latency.median:.3g}")
        cells.append("" if latency is None else f"{1000 * latency.p95:.3g}")
        table.add_row(*cells)
    return table


def _differences(differences: Sequence[Difference]) -> Table:
    level = "95 %, corrected" if differences[0].comparisons > 1 else "95 %"
    table = _table("difference", "pairs", "failed", "unpaired", f"reward [{level}]")
    for one in differences:
        table.add_row(
            escape(f"{one.operator_id} - {one.against}"),
            str(one.total_reward.n),
            str(one.failed),
            str(one.unpaired),
            _with_interval(one.total_reward),
        )
    return table


def _table(first: str, *names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold")
    for name in names:
        # A bracket of a heading would be markup.
        table.add_column(escape(name), justify="right", no_wrap=True)
    return table


def _percent(mean: ConfidenceInterval) -> str:
    low, high = 100 * (mean.low or 0), 100 * (mean.high or 0)
    return escape(f"{100 * (mean.mean or 0):.0f} [{low:.0f}, {high:.0f}]")


def _with_interval(mean: ConfidenceInterval) -> str:
    return escape(str(mean))


# ---------------------------------------------------------------------- a picture


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


def _draw(axes: Any, title: str, label: str, means: dict[str, ConfidenceInterval]) -> None:
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
