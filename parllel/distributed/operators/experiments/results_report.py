"""Reports of an experiment's results for people: tables of text, and a chart."""

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

_WIDTH = 200  # characters, when writing to a file or a pipe


def print_results(groups: Sequence[GroupResult], console: Console) -> None:
    """Print the operators of each group, then their differences."""
    for group in groups:
        console.print(f"[bold]{escape(group.label)}[/]", highlight=False)
        console.print(_operators(group.operators))
        if group.differences:
            console.print(_differences(group.differences))
        for sentence in group.sentences:
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)
        console.print()


def results_console(*, is_seen: bool) -> Console:
    """Return a console for standard output. For a pipe it does not wrap lines, so that `grep` works."""
    return Console(width=None if is_seen else _WIDTH)


def _operators(operators: Sequence[OperatorResult]) -> Table:
    table = _table("operator", "episodes", "failed", "reward [95 %]", "length [95 %]")
    columns = {
        "success % [95 %]": any(result.success for result in operators),
        "understood %": any(result.decisions for result in operators),
        "tokens": any(result.tokens for result in operators),
        "cost": any(result.cost for result in operators),
        "total cost": any(result.cost for result in operators),
    }
    for name in (*(name for name, shown in columns.items() if shown), "median ms", "p95 ms"):
        table.add_column(escape(name), justify="right", no_wrap=True)
    for result in operators:
        cells = [
            escape(result.operator_id),
            f"{result.ended}/{result.asked}",
            str(result.failed),
            _with_interval(result.total_reward),
            _with_interval(result.length),
        ]
        if columns["success % [95 %]"]:
            cells.append("" if result.success is None else _percent(result.success))
        if columns["understood %"]:
            cells.append("" if result.understood is None else f"{100 * result.understood:.3g}")
        if columns["tokens"]:
            cells.append("" if result.tokens is None else f"{result.tokens.mean or 0:,.0f}")
        if columns["cost"]:
            cells.append("" if result.cost is None else f"{result.cost.mean or 0:.4g}")
            cells.append("" if result.total_cost is None else f"{result.total_cost:.4g}")
        latency = result.latency_s
        cells.append("" if latency is None else f"{1000 * latency.median:.3g}")
        cells.append("" if latency is None else f"{1000 * latency.p95:.3g}")
        table.add_row(*cells)
    return table


def _differences(differences: Sequence[Difference]) -> Table:
    level = "95 %, corrected" if differences[0].comparisons > 1 else "95 %"
    table = _table("difference", "pairs", "failed", "unpaired", f"reward [{level}]")
    for difference in differences:
        table.add_row(
            escape(f"{difference.operator_id} - {difference.against}"),
            str(difference.total_reward.n),
            str(difference.failed),
            str(difference.unpaired),
            _with_interval(difference.total_reward),
        )
    return table


def _table(first: str, *names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold")
    for name in names:
        # Escaped: rich would read the brackets of a heading as markup.
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

    path: path of the chart. Its extension determines the format, such as .png or .svg.

    Raises:
        ImportError: if matplotlib is not installed. Names the extra.
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
            f"{result.operator_id} ({result.failed} failed)"
            if result.failed
            else result.operator_id: result.total_reward
            for result in group.operators
        }
        _draw(left, group.label, "total reward, mean and 95 % interval", rewards)
        if not group.differences:
            right.set_axis_off()
            continue
        differences = {
            f"{difference.operator_id} - {difference.against}": difference.total_reward
            for difference in group.differences
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
        # Rounding may put an end of the interval on the wrong side of the mean.
        spread = [[max(0.0, mean.mean - low)], [max(0.0, high - mean.mean)]]
        axes.errorbar([mean.mean], [row], xerr=spread, fmt="o", capsize=3, color="C0")
