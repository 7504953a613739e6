"""The table of figures in the README, made from the JSON that a run wrote."""

from __future__ import annotations

from typing import Any

from benchmarks.readme import Section


def figures(report: dict[str, Any]) -> str:
    """Return the table as Markdown, with what it was measured on."""
    machine = report["machine"]
    gib = machine["memory_bytes"] / 2**30
    lines = [
        f"On {machine['cores']} cores of an {machine['cpu']} with {gib:.0f} GiB, {machine['python']}, "
        f"torch {machine['libraries']['torch']}; median of {report['settings']['pairs']} interleaved "
        "pairs, with the least and the greatest. All figures: "
        "[benchmarks/results/foundation.json](benchmarks/results/foundation.json), by `make bench`.",
        "",
        "| what | measured | at least (aim) |",
        "| --- | --- | --- |",
    ]
    for count in report["counts"]:
        unit = count["unit"]
        lines.append(
            f"| {count['what']} | {count['value']} {unit} | at most {count['target']} "
            f"({count['aim']}) {unit} |"
        )
    lines += [_line(comparison) for comparison in report["comparisons"]]
    return "\n".join(lines) + "\n"


def _line(comparison: dict[str, Any]) -> str:
    ratio = comparison["ratio"]
    reads = comparison["reads"].removeprefix("times ")
    goal = "-"
    if comparison["target"] is not None:
        most = "at most " if reads == "slower" else ""
        goal = f"{most}{comparison['target']:g}x ({comparison['aim']:g}x)"
    return (
        f"| {comparison['what']} | {ratio['median']:.2f}x {reads} "
        f"({ratio['min']:.2f} to {ratio['max']:.2f}) | {goal} |"
    )


SECTION = Section("foundation", "bench", figures)
