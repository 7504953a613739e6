"""Train with every side, seed by seed in turn; print, and write the figures and a chart.

    python -m benchmarks.end_to_end [--quick] [--seeds N] [--steps N] [--only SCENE ...] [--sides NAME ...]

Peers get virtual environments of their own at the first run. Each peer is started at the best of its
settings, found in short trainings before; ours at the one that its users take, or with `--tune-ours` at
its best as well. A quick run shows that everything works; its figures say little. All of it takes ten
minutes on two cores.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.command import Command, wants
from benchmarks.end_to_end.report import comparison, draw, markdown, summary
from benchmarks.end_to_end.scenes import SCENES, Scene
from benchmarks.end_to_end.settings import Settings
from benchmarks.end_to_end.sides import OURS, Side, Variant
from benchmarks.end_to_end.training import LINE_S, Training, TrainingError, train
from benchmarks.harness.results import Report, put_into
from benchmarks.peers import venvs

CALIBRATION_BATCHES, CALIBRATION_ROUNDS = 6, 2
CLEARLY = 1.05


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        seeds: trainings of each side.
        steps: of a training; None: as many as the scene has.
    """

    seeds: int
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 2 * Settings().batch_size:
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
    """Train in every scene with every side, and return what that came to."""
    left_out: dict[str, str] = {}
    scenes = [
        measure_scene(scene, effort, options, left_out)
        for scene in SCENES
        if wants(options, scene.name)
    ]
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")
    return {
        "settings": {"quick": options.quick, "n_seeds": effort.seeds},
        "scenes": scenes,
        "left_out": [{"name": name, "why": why} for name, why in left_out.items()],
    }


def measure_scene(
    scene: Scene, effort: Effort, options: argparse.Namespace, left_out: dict[str, str]
) -> Report:
    """Train with every side of a scene; add sides that cannot be run to `left_out`."""
    settings = replace(scene.settings, n_steps=effort.steps or scene.settings.n_steps)
    print(f"{settings.env}:", flush=True)
    sides = [side for side in scene.sides if side.name in (options.sides or [side.name])]
    entrants = enter(sides, left_out)
    if not options.quick:
        for entrant in entrants:
            if entrant.side.name not in OURS or options.tune_ours:
                calibrate(entrant, settings, options.timeout)
    for seed in range(effort.seeds):
        for entrant in entrants:
            run(entrant, replace(settings, seed=seed), options.timeout)
    trainings = {entrant.side.name: entrant.trainings for entrant in entrants}
    return {
        "name": scene.name,
        "settings": shared_settings(settings),
        "sides": {entrant.side.name: side_report(entrant) for entrant in entrants},
        "comparisons": [
            {"ours": ours, "peer": peer, **comparison(trainings[ours], trainings[peer], goal)}
            for ours, goal in scene.goals.items()
            for peer in trainings
            if ours in trainings and peer not in OURS
        ],
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that only trainings have."""
    parser.add_argument("--tune-ours", action="store_true", help="look for our best setting too")
    parser.add_argument("--timeout", type=float, default=LINE_S, help="seconds for one batch")


def enter(sides: Sequence[Side], left_out: dict[str, str]) -> list[Entrant]:
    """Return the sides that can be run, at the first of their settings; `left_out` gets why others cannot."""
    entrants = []
    for side in sides:
        try:
            python = python_of(side)
        except venvs.MissingPythonError as error:
            left_out[side.name] = str(error)
        except (RuntimeError, subprocess.SubprocessError, OSError) as error:
            # Its messages are for the terminal, not for the results: they name places.
            print(error, file=sys.stderr)
            left_out[side.name] = f"{side.venv}: installing it failed, see the messages of pip"
        else:
            entrants.append(Entrant(side, python, side.variants[0]))
    return entrants


def python_of(side: Side) -> str:
    """Return the interpreter of a side, having made its virtual environment if there is none yet."""
    if side.venv is None:
        return sys.executable
    if venvs.python_of(side.venv) is None:
        print(f"making the virtual environment {side.venv}", file=sys.stderr, flush=True)
        venvs.create(side.venv)
    return str(venvs.python_of(side.venv))


def calibrate(entrant: Entrant, settings: Settings, timeout_s: float) -> None:
    """Let an entrant take the setting with the greatest median rate of some short trainings.

    Settings are listed with the usual one first; a later one has to be clearly faster.
    """
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
    for variant in side.variants[1:]:
        # Clearly faster: of settings that are alike, the one with fewer threads suffers less from others.
        if medians[variant.name] > CLEARLY * medians[entrant.variant.name]:
            entrant.variant = variant
    shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in medians.items())
    print(f"{side.title}: steps/s by setting: {shown}", flush=True)


def run(entrant: Entrant, settings: Settings, timeout_s: float) -> None:
    """Let an entrant train once more."""
    training = train(entrant.python, entrant.side, entrant.variant, settings, line_s=timeout_s)
    entrant.trainings.append(training)
    rate = training.steps_per_second
    print(f"seed {settings.seed}: {entrant.side.title}: {rate:,.0f} steps/s", flush=True)


def shared_settings(settings: Settings) -> dict[str, Any]:
    """Return what all trainings of a scene have in common."""
    shared = asdict(settings)
    for name in ("seed", "torch_threads", "options"):
        del shared[name]
    return {**shared, "batch_size": settings.batch_size, "n_batches": settings.n_batches}


def side_report(entrant: Entrant) -> dict[str, Any]:
    """Return all figures of one side."""
    return {
        "title": entrant.side.title,
        "variant": entrant.variant.name,
        "torch_threads": entrant.variant.torch_threads,
        "options": entrant.variant.options,
        "libraries": entrant.trainings[0].libraries,
        "calibration_steps_per_second": entrant.calibration,
        "trainings": [summary(training) for training in entrant.trainings],
    }


def put_scenes(path: Path, report: Report) -> Report:
    """Return what a file of results holds with the scenes of a report in place of its own."""
    return put_into(path, report, ["scenes"])


COMMAND = Command(
    "end_to_end",
    "whole trainings",
    Effort(5),
    Effort(2, 16_384),
    measure,
    markdown,
    draw,
    parts=[scene.name for scene in SCENES],
    sides=list(dict.fromkeys(side.name for scene in SCENES for side in scene.sides)),
    put=put_scenes,
    numbers={"seeds": "trainings of each side", "steps": "of a training"},
    more=add_options,
)


if __name__ == "__main__":
    COMMAND.run()
