"""Train with every side, seed by seed in turn; print, and write the figures and a chart.

    python -m benchmarks.end_to_end [--quick] [--seeds N] [--steps N] [--sides NAME ...] [--output FILE]

Peers get virtual environments of their own at the first run. Each side is started at the best of its
settings, found in short trainings before; ours at the one that its users take, or with `--tune-ours` at
its best as well. A quick run shows that everything works; its figures say little.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks.command import Command
from benchmarks.end_to_end.report import comparison, draw, markdown, summary
from benchmarks.end_to_end.settings import Settings
from benchmarks.end_to_end.sides import OURS, SIDES, Side, Variant
from benchmarks.end_to_end.training import LINE_S, Training, TrainingError, train
from benchmarks.harness.results import Report
from benchmarks.peers import venvs

CALIBRATION_BATCHES, CALIBRATION_ROUNDS = 12, 3


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        seeds: trainings of each side.
        steps: of a training.
    """

    seeds: int
    steps: int

    def __post_init__(self) -> None:
        if self.steps < 2 * Settings().batch_size:
            raise ValueError(f"--steps: expected steps for two batches, got {self.steps}")


@dataclass
class Entrant:
    """A side that can be run here."""

    side: Side
    python: str
    variant: Variant
    calibration: dict[str, list[float]] = field(default_factory=dict)
    trainings: list[Training] = field(default_factory=list)


def measure(effort: Effort, options: argparse.Namespace) -> Report:
    """Train with every side, and return what that came to."""
    settings = Settings(n_steps=effort.steps)
    chosen = [side for side in SIDES if side.name in (options.sides or [side.name])]
    entrants, left_out = enter(chosen)
    if not options.quick:
        for entrant in entrants:
            if entrant.side is not OURS or options.tune_ours:
                calibrate(entrant, settings, options.timeout)
    for seed in range(effort.seeds):
        for entrant in entrants:
            run(entrant, replace(settings, seed=seed), options.timeout)
    for one in left_out:
        print(f"left out: {one['name']}: {one['why']}")
    return {
        "settings": shared_settings(settings, effort, options.quick),
        "sides": {entrant.side.name: side_report(entrant, entrants) for entrant in entrants},
        "left_out": left_out,
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that only trainings have."""
    parser.add_argument("--tune-ours", action="store_true", help="look for our best setting too")
    parser.add_argument("--timeout", type=float, default=LINE_S, help="seconds for one batch")


def enter(sides: Sequence[Side]) -> tuple[list[Entrant], list[dict[str, str]]]:
    """Return the sides that can be run, at the first of their settings, and why others cannot."""
    entrants, left_out = [], []
    for side in sides:
        try:
            python = python_of(side)
        except venvs.MissingPythonError as error:
            left_out.append({"name": side.name, "why": str(error)})
        except (RuntimeError, subprocess.SubprocessError, OSError) as error:
            # Its messages are for the terminal, not for the results: they name places.
            print(error, file=sys.stderr)
            why = f"{side.venv}: installing it failed, see the messages of pip"
            left_out.append({"name": side.name, "why": why})
        else:
            entrants.append(Entrant(side, python, side.variants[0]))
    return entrants, left_out


def python_of(side: Side) -> str:
    """Return the interpreter of a side, having made its virtual environment if there is none yet."""
    if side.venv is None:
        return sys.executable
    if venvs.python_of(side.venv) is None:
        print(f"making the virtual environment {side.venv}", file=sys.stderr, flush=True)
        venvs.create(side.venv)
    return str(venvs.python_of(side.venv))


def calibrate(entrant: Entrant, settings: Settings, timeout_s: float) -> None:
    """Let an entrant take the setting with the greatest median rate of some short trainings."""
    short = replace(settings, n_steps=CALIBRATION_BATCHES * settings.batch_size)
    side = entrant.side
    for _ in range(CALIBRATION_ROUNDS):
        for variant in side.variants:
            try:
                rate = train(
                    entrant.python, side, variant, short, line_s=timeout_s
                ).steps_per_second
            except TrainingError as error:
                print(error, file=sys.stderr)
                rate = 0.0
            entrant.calibration.setdefault(variant.name, []).append(round(rate, 1))
    medians = {name: statistics.median(rates) for name, rates in entrant.calibration.items()}
    entrant.variant = max(side.variants, key=lambda variant: medians[variant.name])
    shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in medians.items())
    print(f"{side.title}: steps/s by setting: {shown}", flush=True)


def run(entrant: Entrant, settings: Settings, timeout_s: float) -> None:
    """Let an entrant train once more."""
    training = train(entrant.python, entrant.side, entrant.variant, settings, line_s=timeout_s)
    entrant.trainings.append(training)
    rate = training.steps_per_second
    print(f"seed {settings.seed}: {entrant.side.title}: {rate:,.0f} steps/s", flush=True)


def shared_settings(settings: Settings, effort: Effort, quick: bool) -> dict[str, Any]:
    """Return what all trainings have in common."""
    shared = asdict(settings)
    for name in ("seed", "torch_threads", "options"):
        del shared[name]
    return {
        **shared,
        "batch_size": settings.batch_size,
        "n_batches": settings.n_batches,
        "n_seeds": effort.seeds,
        "quick": quick,
    }


def side_report(entrant: Entrant, entrants: Sequence[Entrant]) -> dict[str, Any]:
    """Return all figures of one side, and how ours compares if it was run."""
    report = {
        "title": entrant.side.title,
        "variant": entrant.variant.name,
        "torch_threads": entrant.variant.torch_threads,
        "options": entrant.variant.options,
        "libraries": entrant.trainings[0].libraries,
        "calibration_steps_per_second": entrant.calibration,
        "trainings": [summary(training) for training in entrant.trainings],
    }
    ours = [other for other in entrants if other.side is OURS]
    if ours and entrant.side is not OURS:
        report["against_ours"] = comparison(ours[0].trainings, entrant.trainings)
    return report


COMMAND = Command(
    "end_to_end",
    "whole trainings",
    Effort(5, Settings.n_steps),
    Effort(2, 16_384),
    measure,
    markdown,
    draw,
    sides=[side.name for side in SIDES],
    numbers={"seeds": "trainings of each side", "steps": "of a training"},
    more=add_options,
)


if __name__ == "__main__":
    COMMAND.run()
