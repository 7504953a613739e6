"""The results as Markdown and as a chart."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.answers import answer_table, machine_words
from benchmarks.peers.figures import left_out_line, rate_table
from benchmarks.rollouts.scaling import scaling_table

COLOURS = {"ours": "tab:blue", "peer": "tab:gray"}


def markdown(report: dict[str, Any]) -> str:
    """Return the tables for docs/measured.md, with what they were measured on and the chart."""
    lines = [
        f"{machine_words(report)}; 2 workers with 8 environments each, fragments of 64 steps"
        f"{_images(report)}; medians of {report['settings']['rounds']} interleaved "
        "rounds, and of 5 or more values of all else, with their 95 % intervals.",
        "",
        *answer_table(report["answers"]),
        "",
        "Thousands of steps per second that arrive at the consumer:",
        "",
        *rate_table(report["scenes"]),
        "",
        "Each at the best of its settings: " + "; ".join(_settings(report)) + ".",
        "",
        "![steps per second](../benchmarks/results/rollouts.png)",
    ]
    if left_out := left_out_line(report):
        lines += ["", left_out]
    return "\n".join(lines) + "\n"


def scaling_markdown(report: dict[str, Any]) -> str:
    """Return the table for docs/cluster.md."""
    return "\n".join(scaling_table(report["scaling"])) + "\n"


def _images(report: dict[str, Any]) -> str:
    if not any(scene["name"] == "84x84x4" for scene in report["scenes"]):
        return ""
    return (
        " (with images of 84x84x4 bytes 50 steps, 1.4 MB; with 128x128x3 bytes 2 environments each and 256 "
        "steps, 12 MB; images are vectors of float32 with as many bytes, drawn beforehand)"
    )


def _settings(report: dict[str, Any]) -> list[str]:
    return [
        f"{side['name']} on {scene['name']} {said}"
        for scene in report["scenes"]
        for side in scene["sides"]
        if len(side["trials"]) > 1
        and (said := ", ".join(f"{key}={value}" for key, value in side["settings"].items()))
    ]


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw a panel of horizontal bars for each scene, with the least and the greatest rate of each side."""
    from matplotlib.figure import Figure

    scenes = report["scenes"]
    if not scenes:
        return
    figure = Figure(figsize=(6.5 * len(scenes), 3.0), layout="constrained")
    panels = figure.subplots(1, len(scenes), squeeze=False)[0]
    for panel, scene in zip(panels, scenes, strict=True):
        sides = list(reversed(scene["sides"]))
        rates = [median(side["rates"]) for side in sides]
        spread = [
            [rate - min(side["rates"]) for rate, side in zip(rates, sides, strict=True)],
            [max(side["rates"]) - rate for rate, side in zip(rates, sides, strict=True)],
        ]
        names = [side["name"] for side in sides]
        panel.barh(names, rates, xerr=spread, color=[COLOURS[side["kind"]] for side in sides])
        ends = [rate + above for rate, above in zip(rates, spread[1], strict=True)]
        panel.set_xlim(0, 1.2 * max(ends))
        for i, (rate, end) in enumerate(zip(rates, ends, strict=True)):
            panel.text(end, i, f"  {rate:,.0f}", va="center", fontsize=8)
        panel.set_title(f"{scene['name']}: steps per second at the consumer", fontsize=9)
        panel.tick_params(labelsize=8)
    figure.savefig(path, dpi=110)
