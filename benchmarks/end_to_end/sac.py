"""Do our SAC and that of Stable-Baselines3 learn alike on HalfCheetah-v5?

    python -m benchmarks.end_to_end.sac [--seeds N] [--steps N] [--timeout SECONDS] [--output FILE]

Trains both with each seed, on one thread. Every training is written to the file as soon as it has ended,
and a later start goes on with those that are missing. A training takes five to ten minutes. This may run
beside other programs; how fast the two are is measured by `make bench-off-policy`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.end_to_end.comparing import (
    Point,
    difference_interval,
    learning_curve,
    likeness,
)
from benchmarks.end_to_end.report import draw_curves
from benchmarks.end_to_end.settings import SacSettings
from benchmarks.end_to_end.sides import Side, Variant
from benchmarks.end_to_end.training import LINE_S, Training, train
from benchmarks.harness.answers import table
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.results import Report, read, results_of, write
from benchmarks.peers import venvs

ONE_THREAD = (Variant("1 thread", 1, {}),)
OURS = Side("ours", "parllel", "sac_ours", None, ONE_THREAD)
SB3 = Side("sb3", "Stable-Baselines3", "sac_sb3", "peers", ONE_THREAD)
LAST_EPISODES = 10


def main() -> None:
    """Train what the file of results lacks."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__spec__.name}", description="Compare learning curves of SAC."
    )
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="trainings of each side")
    parser.add_argument("--steps", type=int, default=50_000, metavar="N", help="of a training")
    parser.add_argument("--timeout", type=float, default=LINE_S, help="seconds for 1000 steps")
    parser.add_argument("--output", type=Path, default=results_of("sac_curves"))
    options = parser.parse_args()
    settings = replace(SacSettings(), n_steps=options.steps)
    report = begin(options.output, settings)
    for seed in range(options.seeds):
        for side in (OURS, SB3):
            add_training(report, side, replace(settings, seed=seed), options)
    print(f"\n{markdown(report)}")
    draw(report, options.output.with_suffix(".png"))


def begin(path: Path, settings: SacSettings) -> Report:
    """Return what a file has, or a report without trainings; exit if it has other settings."""
    shared = {
        name: value
        for name, value in asdict(settings).items()
        if name not in ("seed", "torch_threads", "options")
    }
    shared["hidden_sizes"] = list(shared["hidden_sizes"])
    shared["quick"] = settings.n_steps < SacSettings().n_steps
    if not path.exists():
        machine = {**describe_machine(), "load_average_1min": None}
        sides = {
            side.name: {"title": side.title, "libraries": {}, "trainings": []}
            for side in (OURS, SB3)
        }
        return {"machine": machine, "settings": shared, "sides": sides}
    report = read(path)
    if report["settings"] != shared:
        sys.exit(f"{path} has other settings: {report['settings']}; move it, or name another file")
    return report


def add_training(
    report: Report, side: Side, settings: SacSettings, options: argparse.Namespace
) -> None:
    """Train with a seed, unless that has been done, and write the report."""
    found = report["sides"][side.name]
    if any(training["seed"] == settings.seed for training in found["trainings"]):
        return
    python = sys.executable
    if side.venv is not None:
        if venvs.python_of(side.venv) is None:
            venvs.create(side.venv)
        python = str(venvs.python_of(side.venv))
    training = train(python, side, side.variants[0], settings, line_s=options.timeout)
    found["libraries"] = training.libraries
    found["trainings"].append(summary(training))
    print(f"seed {settings.seed}: {side.title}: {found['trainings'][-1]['last']:,.0f}", flush=True)
    write(options.output, {**report, **comparison(report["sides"])})


def summary(training: Training) -> dict[str, Any]:
    """Return the curve of a training, and the mean return of its last episodes."""
    episodes = [value for batch in training.returns for value in batch]
    last = episodes[-LAST_EPISODES:]
    curve = learning_curve(training.returns, training.settings.batch_size)
    return {
        "seed": training.settings.seed,
        "last": round(sum(last) / len(last), 1),
        "curve": [[point.steps, round(point.mean_return, 1)] for point in curve],
    }


def comparison(sides: Mapping[str, Any]) -> dict[str, Any]:
    """Return how our curves differ from the other's; nothing before both have two."""
    trainings = [sides[side.name]["trainings"] for side in (OURS, SB3)]
    if min(map(len, trainings)) < 2:
        return {}
    lasts = [[training["last"] for training in side] for side in trainings]
    low, high = difference_interval(lasts[0], lasts[1])
    curves = [
        [[Point(*point) for point in training["curve"]] for training in side] for side in trainings
    ]
    alike = likeness(*curves)
    means = [sum(side) / len(side) for side in lasts]
    return {
        "last_episodes": {
            "n_episodes": LAST_EPISODES,
            "ours": round(means[0], 1),
            "theirs": round(means[1], 1),
            "difference": round(means[0] - means[1], 1),
            "low": round(low, 1),
            "high": round(high, 1),
        },
        "learning_curves": {**alike._asdict(), "verdict": alike.verdict},
    }


def markdown(report: Mapping[str, Any]) -> str:
    """Return the table for docs/measured.md with the chart."""
    settings, sides = report["settings"], report["sides"]
    n_seeds = min(len(side["trainings"]) for side in sides.values())
    rows = []
    for side in sides.values():
        lasts = [training["last"] for training in side["trainings"]]
        mean = sum(lasts) / len(lasts)
        rows.append(
            [side["title"], f"{mean:,.0f}", " ".join(f"{last:,.0f}" for last in sorted(lasts))]
        )
    lines = [
        f"SAC on {settings['env']}, {settings['n_steps']:,} steps with {n_seeds} seeds each, the first "
        f"{settings['learning_starts']:,} with random actions; mean return of the last {LAST_EPISODES} "
        "episodes of the training:",
        "",
        *table(("side", "mean", "by seed"), rows, "lrl"),
        "",
    ]
    if last := report.get("last_episodes"):
        curves = report["learning_curves"]
        lines += [
            f"The means differ by {last['difference']:,.0f} (95 % interval of the permutation test: "
            f"{last['low']:,.0f} to {last['high']:,.0f}). Whole curves: {curves['verdict']} "
            f"(p = {curves['p_value']:.2f}).",
            "",
        ]
    lines.append("![learning curves of SAC](../benchmarks/results/sac_curves.png)")
    return "\n".join(lines) + "\n"


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the mean curves with the range of their seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for side in report["sides"].values():
        draw_curves(axes, side)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return")
    axes.legend(loc="upper left", fontsize=9)
    axes.set_title(f"SAC on {report['settings']['env']}, mean and range of the seeds", fontsize=10)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
