"""The table of what one machine says about our own parts, from the JSON that `make bench` wrote."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.answers import (
    ANSWER_HEADS,
    comparison_words,
    goal_words,
    met_words,
    table,
)
from benchmarks.harness.interval import estimate


def markdown(report: dict[str, Any]) -> str:
    """Return the table as Markdown, with what it was measured on."""
    machine = report["machine"]
    gib = machine["memory_bytes"] / 2**30
    lines = [
        f"On {machine['cores']} cores of an {machine['cpu']} with {gib:.0f} GiB, {machine['python']}, "
        f"torch {machine['libraries']['torch']}; medians of {report['settings']['pairs']} interleaved "
        "pairs.",
        "",
        *table(
            ANSWER_HEADS,
            [*map(count_cells, report["counts"]), *map(comparison_cells, report["comparisons"])],
        ),
    ]
    return "\n".join(lines) + "\n"


def count_cells(count: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return what, measured, target and verdict of a count."""
    unit = count["unit"]
    goal = f"at most {count['target']} ({count['aim']}) {unit}"
    met = met_words(count["met"], count["aim_met"])
    return count["what"], f"{count['value']} {unit}", goal, met


def comparison_cells(comparison: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return what, measured, target and verdict of a comparison."""
    found = estimate(comparison["ratios"])
    slower = comparison["reads"] == "times slower"
    words = comparison_words(found.inverse() if slower else found)
    if comparison["target"] is None:
        return comparison["what"], words, "-", "-"
    goal = goal_words(comparison["target"], slower)
    if comparison["aim"] is not None:
        goal += f" ({comparison['aim']:g}x)"
    return comparison["what"], words, goal, met_words(comparison["met"], comparison["aim_met"])
