"""What a run came to, in Markdown for the README and as a chart."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.readme import Section

COLOURS = {"ours": "#1f77b4", "peer": "#b0b0b0", "native": "#e0c080", "ideal": "#404040"}


def figures(report: dict[str, Any]) -> str:
    """Return the tables, with what they were measured on."""
    machine, settings = report["machine"], report["settings"]
    lines = [
        f"On {machine['cores']} cores of an {machine['cpu']}, {machine['python']}; T=64, B=16 unless said; "
        f"medians of {settings['rounds']} interleaved rounds with their 95 % intervals, of which the far "
        "bound counts. All figures: [benchmarks/results/peers.json](benchmarks/results/peers.json), by "
        "`make bench-peers`.",
        "",
        "| what | measured | at least (aim) | met |",
        "| --- | --- | --- | --- |",
        *(answer_line(answer) for answer in report["answers"]),
        "",
        "Thousands of environment steps per second, each library at its best setting:",
        "",
        *rate_table(report["scenes"]),
    ]
    left_out = left_out_line(report)
    lines += ["", "![rates relative to the ideal](benchmarks/results/peers.png)"]
    if left_out:
        lines += ["", left_out]
    return "\n".join(lines) + "\n"


def answer_line(answer: dict[str, Any]) -> str:
    """Return a row of the first table."""
    return f"| {' | '.join(answer_cells(answer))} |"


def answer_cells(answer: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return what, measured, goal and verdict as text."""
    unit, found = answer["unit"], answer["measured"]
    if answer["void"]:
        measured = f"void: {answer['void']}"
    elif found is None:
        measured = answer["note"] or "not measured"
    else:
        measured = f"{found['median']:.3g}{unit} ({found['low']:.3g} to {found['high']:.3g})"
    goal = "-"
    if answer["at_least"] is not None:
        most = "at most " if answer["small_is_good"] else ""
        goal = f"{most}{answer['at_least']:g}{unit} ({answer['aim']:g}{unit})"
    met = {None: "-", True: "yes", False: "no"}[answer["met"]]
    return answer["what"], measured, goal, "aim" if answer["aim_met"] else met


def rate_table(scenes: list[dict[str, Any]]) -> list[str]:
    """Return rows of rates: a side each, a scene a column."""
    names: dict[str, None] = {}
    for scene in scenes:
        names.update(dict.fromkeys(s["name"] for s in scene["sides"] if s["kind"] != "model"))
    lines = [
        f"| | {' | '.join(scene['name'] for scene in scenes)} |",
        "| --- |" + " ---: |" * len(scenes),
    ]
    for name in names:
        cells = []
        for scene in scenes:
            side = next((s for s in scene["sides"] if s["name"] == name), None)
            cells.append("" if side is None else f"{median(side['rates']) / 1e3:,.1f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def left_out_line(report: dict[str, Any]) -> str:
    """Return a sentence about what was not measured, or ""."""
    reasons = dict(report["not_measured"])
    for scene in report["scenes"]:
        for left in scene["left_out"]:
            reasons.setdefault(f"{left['side']} on {scene['name']}", left["why"])
    if not reasons:
        return ""
    return "Not measured: " + "; ".join(f"{who} ({why})" for who, why in reasons.items()) + "."


SECTION = Section("peers", "bench-peers", figures)
CHART = SECTION.results.with_suffix(".png")


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw a panel of horizontal bars for each scene: rates as shares of the ideal's."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib.figure import Figure

    scenes = [scene for scene in report["scenes"] if _ideal_rate(scene)]
    if not scenes:
        return
    columns = 2 if len(scenes) > 1 else 1
    rows = -(-len(scenes) // columns)
    figure = Figure(figsize=(6.5 * columns, 3.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, scene in zip(panels, scenes, strict=False):
        _draw_scene(panel, scene)
    for panel in panels[len(scenes) :]:
        panel.set_visible(False)
    figure.savefig(path, dpi=110)


def _draw_scene(panel: Any, scene: dict[str, Any]) -> None:
    ideal = _ideal_rate(scene)
    sides = [side for side in scene["sides"] if side["kind"] in COLOURS]
    sides.sort(key=lambda side: median(side["rates"]))
    shares = [median(side["rates"]) / ideal for side in sides]
    panel.barh(
        [side["name"] for side in sides], shares, color=[COLOURS[side["kind"]] for side in sides]
    )
    # An environment in C++ may be many times faster than Python: its bar is cut, its figure is not.
    panel.set_xlim(0, 1.25)
    for i, share in enumerate(shares):
        panel.text(min(share, 1.2) + 0.01, i, f"{share:.2f}", va="center", fontsize=8)
    panel.axvline(1.0, color=COLOURS["ideal"], linewidth=0.8)
    panel.set_title(f"{scene['name']}: env steps/s relative to the ideal", fontsize=9)
    panel.tick_params(labelsize=8)


def _ideal_rate(scene: dict[str, Any]) -> float:
    return max((median(s["rates"]) for s in scene["sides"] if s["kind"] == "ideal"), default=0.0)
