"""An experiment's results as tables of text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parllel.distributed.operators.experiments.intervals import Mean
from parllel.distributed.operators.experiments.results import (
    Difference,
    GroupResult,
    OperatorResult,
)

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


def _percent(mean: Mean) -> str:
    low, high = 100 * (mean.low or 0), 100 * (mean.high or 0)
    return escape(f"{100 * (mean.mean or 0):.0f} [{low:.0f}, {high:.0f}]")


def _with_interval(mean: Mean) -> str:
    return escape(str(mean))
