"""What a step costs by where the policy runs, as a table and a chart."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.distributed.rounds import IDEALS
from benchmarks.harness.answers import machine_words, number, ratios, table
from benchmarks.harness.interval import estimate

OURS, IDEAL = "#1f6fb4", "#b8b8b8"


def markdown(report: dict[str, Any]) -> str:
    """Return the table, with what it was measured on."""
    settings, found = report["settings"], report["seconds"]
    sizes = [str(n) for n in settings["sizes"]]
    of_sizes = [(f"{n} environment{'s' * (n != '1')}", "ideal") for n in sizes]
    heads = ["the policy acts", *chain(*of_sizes), "the ideal is"]
    rows = []
    for place, ideal in IDEALS.items():
        cells = [_cells(found[n], place, ideal) for n in sizes if place in found[n]]
        if cells:
            rows.append([place, *chain(*cells), ideal])
    lines = [
        "Microseconds for a step of one environment, CartPole-v1 with a policy that costs next to "
        "nothing, by where the policy runs; beside it the least that the wire takes, with the same "
        f"environments and policy. {machine_words(report)}; medians "
        f"of {settings['rounds']} interleaved rounds of {settings['turn_s']:g} s, and of the ratio its "
        "95 % interval.",
        "",
        *table(heads, rows, "l" + "rl" * len(sizes) + "l"),
    ]
    return "\n".join(lines) + "\n"


def short_table(report: dict[str, Any]) -> str:
    """Return the medians alone, and the chart."""
    settings, found = report["settings"], report["seconds"]
    sizes = [str(n) for n in settings["sizes"]]
    of_sizes = [f"{n} environment{'s' * (n != '1')}, ideal of the wire" for n in sizes]
    heads = ["the policy acts", *of_sizes]
    rows = []
    for place, ideal in IDEALS.items():
        cells = [
            f"{microseconds(found[n][place])}, {microseconds(found[n][ideal])}"
            for n in sizes
            if place in found[n]
        ]
        if cells:
            rows.append([place, *cells])
    lines = [
        "What one step of CartPole-v1 costs in microseconds when the policy runs in the same process, in "
        "another process, behind HTTP, and so on, next to the cost of the bare transport (the ideal). The "
        "policy itself costs almost nothing.",
        "",
        *table(heads, rows, "l" + "r" * len(sizes)),
        "",
        "![Cost of a step](../benchmarks/results/distributed.png)",
    ]
    return "\n".join(lines) + "\n"


def _cells(found: dict[str, list[float]], place: str, ideal: str) -> tuple[str, str]:
    ours, theirs = found[place], found[ideal]
    ratio = estimate(ratios(ours, theirs))
    words = f"{number(ratio.median)}x ({number(ratio.low)} to {number(ratio.high)})"
    return microseconds(ours), f"{microseconds(theirs)}, {words}"


def microseconds(seconds: list[float]) -> str:
    """Return the median with three digits."""
    value = 1e6 * median(seconds)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw a panel for each number of environments: bars of each place and of its ideal."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    found, sizes = report["seconds"], [str(n) for n in report["settings"]["sizes"]]
    figure = Figure(figsize=(6.0 * len(sizes), 4.2), layout="constrained")
    panels = figure.subplots(1, len(sizes), squeeze=False, sharey=True)[0]
    for panel, n in zip(panels, sizes, strict=True):
        names = [name for name in reversed(IDEALS) if name in found[n]]
        for of_ideal in (False, True):
            sides = [IDEALS[name] if of_ideal else name for name in names]
            values = [1e6 * median(found[n][side]) for side in sides]
            places = [i - 0.2 if of_ideal else i + 0.2 for i in range(len(names))]
            label, colour = ("ideal of the wire", IDEAL) if of_ideal else ("parllel", OURS)
            panel.barh(places, values, 0.4, label=label, color=colour)
            for place, side, value in zip(places, sides, values, strict=True):
                panel.text(
                    value, place, f" {microseconds(found[n][side])}", va="center", fontsize=7
                )
        panel.set_yticks(range(len(names)), names, fontsize=8)
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.margins(x=0.15)
        panel.set_title(f"µs per environment step, {n} environment{'s' * (n != '1')}", fontsize=9)
        panel.tick_params(labelsize=8)
    panels[-1].legend(fontsize=8, loc="upper right")
    figure.savefig(path, dpi=110)
