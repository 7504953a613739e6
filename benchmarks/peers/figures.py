"""Results of a run as Markdown for docs/measured.md, and as a chart."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.answers import (
    answer_table,
    comparison_words,
    machine_words,
    table,
    thousands,
)
from benchmarks.peers.rates import best_of, shares, speed_against

COLOURS = {
    "ours": "#1f77b4",
    "compiled": "#6baed6",
    "peer": "#b0b0b0",
    "native": "#e0c080",
    "ideal": "#404040",
}


def markdown(report: dict[str, Any]) -> str:
    """Return the tables, with what they were measured on."""
    settings, scenes = report["settings"], report["scenes"]
    lines = [
        f"{machine_words(report)}; T=64, B=16 unless said "
        f"otherwise; medians of {settings['rounds']} interleaved rounds with their 95 % intervals.",
        "",
        *answer_table(report["answers"]),
        "",
        "### EnvPool",
        "",
        *native_table(scenes),
        "",
        "### Rates",
        "",
        "Thousands of environment steps per second, each library at its best setting; EnvPool's in bold "
        "where it is ahead.",
        "",
        *rate_table([scene for scene in scenes if best_of(scene, "native")]),
        "",
        *rate_table([scene for scene in scenes if not best_of(scene, "native")]),
        "",
        "The same as shares of the ideal, round by round as in the first table:",
        "",
        "![rates as shares of the ideal](../benchmarks/results/peers.png)",
    ]
    left_out = left_out_line(report)
    if left_out:
        lines += ["", left_out]
    return "\n".join(lines) + "\n"


def native_table(scenes: list[dict[str, Any]]) -> list[str]:
    """Return rows for the scenes that EnvPool has environments for: how we stand against it."""
    rows = []
    for scene in scenes:
        native = best_of(scene, "native")
        sides = [best_of(scene, "ours"), best_of(scene, "compiled")]
        if native is None or sides[0] is None:
            continue
        row = [scene["name"], thousands(median(native["rates"]))]
        for side in sides:
            rate, words = "", ""
            if side is not None:
                rate, words = (
                    thousands(median(side["rates"])),
                    comparison_words(speed_against(side, native)),
                )
            row += [rate, words]
        rows.append(row)
    heads = ("scene", "EnvPool", "parllel", "parllel is", "compiled", "compiled envs are")
    return table(heads, rows, "lrrlrl")


def rate_table(scenes: list[dict[str, Any]]) -> list[str]:
    """Return rows of rates: a side each, a scene a column."""
    names: dict[str, None] = {}
    for scene in scenes:
        names.update(dict.fromkeys(s["name"] for s in scene["sides"] if s["kind"] != "model"))
    rows = []
    for name in names:
        cells = [name]
        for scene in scenes:
            side = next((s for s in scene["sides"] if s["name"] == name), None)
            cells.append("" if side is None else rate_cell(scene, side))
        rows.append(cells)
    heads = ["", *(scene["name"] for scene in scenes)]
    return table(heads, rows, "l" + "r" * len(scenes))


def rate_cell(scene: dict[str, Any], side: dict[str, Any]) -> str:
    """Return a rate in thousands, in bold where EnvPool is ahead of us."""
    rate, ours = f"{median(side['rates']) / 1e3:,.1f}", best_of(scene, "ours")
    ahead = side["kind"] == "native" and ours and speed_against(side, ours).median > 1
    return f"**{rate}**" if ahead else rate


def left_out_line(report: dict[str, Any]) -> str:
    """Return a sentence about what was not measured, or ""."""
    reasons = {why: [who] for who, why in report["not_measured"].items()}
    for scene in report["scenes"]:
        for left in scene["left_out"]:
            # Of several settings that failed alike, one reason is enough.
            why = left["why"].partition(";")[0].rpartition("AssertionError: ")[2]
            reasons.setdefault(why, []).append(f"{left['side']} on {scene['name']}")
    if not reasons:
        return ""
    parts = [f"{', '.join(who)} ({why})" for why, who in reasons.items()]
    return f"Not measured: {'; '.join(parts)}."


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw a panel of horizontal bars for each scene: shares of the ideal, as `rates.shares` has them."""
    from matplotlib.figure import Figure

    scenes = [scene for scene in report["scenes"] if best_of(scene, "ideal")]
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
    share_of = shares(scene)
    sides = [side for side in scene["sides"] if side["kind"] in COLOURS]
    sides.sort(key=lambda side: share_of[side["name"]])
    names = [side["name"] for side in sides]
    panel.barh(
        names,
        [share_of[name] for name in names],
        color=[COLOURS[side["kind"]] for side in sides],
    )
    # An environment in C++ may be many times faster than Python: its bar is cut, its figure is not.
    panel.set_xlim(0, 1.25)
    for i, share in enumerate(share_of[name] for name in names):
        panel.text(min(share, 1.2) + 0.01, i, f"{share:.2f}", va="center", fontsize=8)
    panel.axvline(1.0, color=COLOURS["ideal"], linewidth=0.8)
    panel.set_title(f"{scene['name']}: share of the ideal", fontsize=9)
    panel.tick_params(labelsize=8)
