"""The results as a table and as small charts."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.end_to_end.report import draw_curves
from benchmarks.gallery.comparison import LEVEL, filled, with_same_steps
from benchmarks.harness.answers import table
from benchmarks.harness.results import Report

HEADS = (
    "settings, environment",
    "steps",
    "seeds",
    "parllel",
    "Stable-Baselines3",
    "difference",
    "p, curves",
)
N_COLUMNS = 3
EXAMPLES = Path(__file__).parents[2] / "examples"
ELSEWHERE_HEADS = ("script", "environment", "steps", "mean return", "Stable-Baselines3")


@dataclass(frozen=True)
class Elsewhere:
    """Trainings of ours without a counterpart.

    Attributes:
        script, curves: files below examples/. The second has the curves.
        arguments: of the script.
        environment: its name.
        why: there is no counterpart.
        several: whether each curve of the file is that of a seed; otherwise there is one of evaluations.
    """

    script: str
    curves: str
    environment: str
    why: str
    arguments: str = ""
    several: bool = True

    def cells(self) -> list[str]:
        """Return the row of the table: the last evaluation of each seed, and when it was."""
        curves = json.loads((EXAMPLES / self.curves).read_text())["curves"]
        found = curves.values() if self.several else [curves["evaluation"]]
        steps, means = zip(*(curve[-1] for curve in found), strict=True)
        name = f"`{self.script}{self.arguments}`"
        taken = f"{steps[0]:,}" if min(steps) == max(steps) else f"{min(steps):,} to {max(steps):,}"
        return [name, self.environment, taken, f"{_with_seeds(means)}, evaluation", self.why]


ELSEWHERE = (
    Elsewhere(
        "pong/train_ppo.py",
        "pong/curve.json",
        "PongNoFrameskip-v4",
        "not run",
        several=False,
    ),
    Elsewhere("pong/train_dqn.py", "pong/dqn.json", "PongNoFrameskip-v4", "not run", several=False),
    Elsewhere(
        "cartpole_memory/train_r2d1.py",
        "cartpole_memory/r2d1.json",
        "CartPole-v1 without velocities",
        "has no R2D1",
    ),
    Elsewhere(
        "mpe/train_ppo.py",
        "mpe/shared.json",
        "simple_spread_v3",
        "has no multi-agent algorithms",
        " shared",
    ),
)


def _half_cheetah(sac_curves: Report) -> list[str]:
    """Return the row of SAC on HalfCheetah, whose comparison is another benchmark."""
    settings = sac_curves["settings"]
    ours, theirs = (
        _with_seeds([training["last"] for training in sac_curves["sides"][side]["trainings"]])
        for side in ("ours", "sb3")
    )
    script, last = "`half_cheetah/train_sac.py`", sac_curves["last_episodes"]
    compared = (
        f"{theirs}; difference {number(last['difference'])} "
        f"({number(last['low'])} to {number(last['high'])})"
    )
    episodes = f"{ours}, last {last['n_episodes']} episodes of the training"
    return [script, settings["env"], f"{settings['n_steps']:,}", episodes, compared]


def trained(report: Report) -> dict[str, Any]:
    """Return the entries of which a training has ended or failed."""
    return {
        name: entry
        for name, entry in report["entries"].items()
        if any(side["trainings"] or side["failed"] for side in entry["sides"].values())
    }


def markdown(report: Report) -> str:
    """Return the table of the entries with their picture."""
    rows = [_cells(name, entry) for name, entry in trained(report).items()]
    picture = "![learning curves beside Stable-Baselines3's](../benchmarks/results/gallery.png)"
    return "\n".join([*table(HEADS, rows, "lrrllll"), "", picture]) + "\n"


def page(report: Report, sac_curves: Report) -> str:
    """Return the section of docs/gallery.md: the entries, and what other runs reached."""
    rows = [_half_cheetah(sac_curves), *(one.cells() for one in ELSEWHERE)]
    lines = [
        markdown(report),
        "These were trained by other scripts, with figures from their JSON files. An evaluation is the "
        "last of a run. PPO on Pong and R2D1 end with the first evaluation that reaches a target (20 and "
        "475), so their last evaluations are selected.",
        "",
        *table(ELSEWHERE_HEADS, rows, "llrrl"),
    ]
    return "\n".join(lines) + "\n"


def _cells(name: str, entry: Mapping[str, Any]) -> list[str]:
    settings, sides = entry["settings"], entry["sides"]
    compared = entry.get("comparison")
    return [
        f"`{name}`, {settings['env_id']}",
        f"{settings['n_steps']:,}",
        _seeds(*(len(sides[side]["trainings"]) for side in ("ours", "sb3"))),
        _side_words(sides["ours"]),
        _side_words(sides["sb3"]),
        _difference_words(compared),
        _curve_words(compared),
    ]


def _seeds(ours: int, theirs: int) -> str:
    return str(ours) if ours == theirs else f"{ours} and {theirs}"


def _side_words(side: Mapping[str, Any]) -> str:
    """Return mean and range over seeds, and how many trainings failed."""
    means, parts = [training["mean"] for training in side["trainings"]], []
    if means:
        parts.append(_spread(means))
    if side["failed"]:
        parts.append(f"{len(side['failed'])} failed")
    return "; ".join(parts) or "-"


def _spread(means: Sequence[float]) -> str:
    """Return mean and range of some seeds."""
    low, high = number(min(means)), number(max(means))
    return (
        number(means[0])
        if len(means) == 1
        else f"{number(statistics.fmean(means))} ({low} to {high})"
    )


def _with_seeds(means: Sequence[float]) -> str:
    return f"{_spread(means)}, {len(means)} seed{'s' * (len(means) > 1)}"


def _difference_words(compared: Mapping[str, Any] | None) -> str:
    if compared is None:
        return "too few seeds"
    if compared["interval"] is None:
        return f"{number(compared['difference'])}, too few seeds for an interval"
    low, high = compared["interval"]
    return f"{number(compared['difference'])} ({number(low)} to {number(high)})"


def _curve_words(compared: Mapping[str, Any] | None) -> str:
    """Return the p-value of the curves, and which is higher if they differ."""
    if compared is None or compared["least_p_value"] > LEVEL:
        return "too few seeds"
    if compared["learning_curves"] is None:
        return "-"
    alike = compared["learning_curves"]
    p = alike["p_value"]
    if p > LEVEL:
        return f"{p:.2f}"
    return f"{p:.2f}, {'higher' if alike['ours'] > alike['theirs'] else 'lower'}"


def number(value: float) -> str:
    """Return a return with three digits or more."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def draw(report: Report, path: Path) -> None:
    """Draw the learning curves of each entry, with the range of their seeds."""
    from matplotlib.figure import Figure

    entries = {name: entry for name, entry in trained(report).items() if _sides_with_curves(entry)}
    if not entries:
        return
    n_rows = -(-len(entries) // N_COLUMNS)
    figure = Figure(figsize=(11, 2.9 * n_rows), layout="constrained")
    cells = iter(figure.subplots(n_rows, N_COLUMNS, squeeze=False).flat)
    for (name, entry), axes in zip(entries.items(), cells, strict=False):
        for side in _sides_with_curves(entry):
            draw_curves(axes, side)
        axes.set_title(name, fontsize=10)
        axes.locator_params(axis="x", nbins=4)
        axes.tick_params(labelsize=8)
        axes.legend(loc="best", fontsize=8)
    for axes in cells:
        axes.set_axis_off()
    figure.supxlabel("environment steps", fontsize=9)
    figure.supylabel("return of training episodes", fontsize=9)
    figure.savefig(path, dpi=110)


def _sides_with_curves(entry: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the sides that have curves, all with points at the same steps."""
    interval, found = entry["settings"]["log_interval_steps"], []
    for side in entry["sides"].values():
        curves = [filled(one["curve"], interval) for one in side["trainings"] if one["curve"]]
        if curves:
            (points,) = with_same_steps([curves])
            found.append({"title": side["title"], "trainings": [{"curve": one} for one in points]})
    return found
