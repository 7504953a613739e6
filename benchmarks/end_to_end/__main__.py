"""Train with every side, seed by seed in turn; print, and write the figures and a chart.

    python -m benchmarks.end_to_end [--quick] [--seeds N] [--steps N] [--sides A,B] [--output FILE]

Peers get virtual environments of their own at the first run. Each side is started at the best of its
settings, found in short trainings before; ours at the one that its users take, or with `--tune-ours` at
its best as well. A quick run shows that everything works; its figures say little.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.end_to_end.pythons import NotInstalledError, python_of
from benchmarks.end_to_end.report import comparison, draw, print_table, summary
from benchmarks.end_to_end.settings import Settings
from benchmarks.end_to_end.sides import OURS, SIDES, Side, Variant
from benchmarks.end_to_end.training import LINE_S, Training, TrainingError, train
from benchmarks.measure import describe_machine
from benchmarks.pages import results_of, update_pages

RESULTS = results_of("end_to_end")
CALIBRATION_BATCHES, CALIBRATION_ROUNDS = 12, 3


@dataclass
class Entrant:
    """A side that can be run here."""

    side: Side
    python: str
    variant: Variant
    calibration: dict[str, list[float]] = field(default_factory=dict)
    trainings: list[Training] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments, train, print and write."""
    options = parse(arguments)
    # Ended from outside, processes of the sides are still ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    machine = describe_machine()
    settings = Settings(n_steps=options.steps)
    entrants, left_out = enter(options.sides)
    if not options.quick:
        for entrant in entrants:
            if entrant.side is not OURS or options.tune_ours:
                calibrate(entrant, settings, options.timeout)
    for seed in range(options.seeds):
        for entrant in entrants:
            run(entrant, replace(settings, seed=seed), options.timeout)
    report: dict[str, Any] = {
        "machine": machine,
        "settings": shared_settings(settings, options),
        "sides": {entrant.side.name: side_report(entrant, entrants) for entrant in entrants},
        "left_out": left_out,
    }
    print()
    print_table(report["sides"])
    for one_left_out in left_out:
        print(f"left out: {one_left_out['name']}: {one_left_out['why']}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    draw(report, options.output.with_suffix(".png"))
    print(f"\nfigures: {options.output}, with a chart beside it")
    if options.output == RESULTS and not options.quick and not options.sides_chosen:
        update_pages()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; `sides` as a list of Side, `seeds` and `steps` filled in."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.end_to_end", description="Compare whole trainings."
    )
    parser.add_argument("--quick", action="store_true", help="a few batches; for a look only")
    parser.add_argument("--seeds", type=int, help="trainings per side; default 5, quick 2")
    parser.add_argument("--steps", type=int, help="of a training; default 307200, quick 16384")
    parser.add_argument("--sides", metavar="A,B", help="names; default all that can be installed")
    parser.add_argument("--tune-ours", action="store_true", help="look for our best setting too")
    parser.add_argument("--timeout", type=float, default=LINE_S, help="seconds for one batch")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.seeds = options.seeds or (2 if options.quick else 5)
    options.steps = options.steps or (16_384 if options.quick else Settings.n_steps)
    if options.seeds < 1 or options.steps < 2 * Settings().batch_size:
        parser.error("expected at least one seed, and steps for two batches")
    by_name = {side.name: side for side in SIDES}
    options.sides_chosen = bool(options.sides)
    names = options.sides.split(",") if options.sides else list(by_name)
    if unknown := [name for name in names if name not in by_name]:
        parser.error(f"--sides: expected some of {', '.join(by_name)}, got {', '.join(unknown)}")
    options.sides = [by_name[name] for name in names]
    return options


def enter(sides: Sequence[Side]) -> tuple[list[Entrant], list[dict[str, str]]]:
    """Return the sides that can be run, at the first of their settings, and why others cannot."""
    entrants, left_out = [], []
    for side in sides:
        try:
            python = python_of(side.requirements() if side.requirements else None)
        except NotInstalledError as error:
            left_out.append({"name": side.name, "why": str(error)})
        else:
            entrants.append(Entrant(side, python, side.variants[0]))
    return entrants, left_out


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


def shared_settings(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """Return what all trainings have in common."""
    shared = asdict(settings)
    for name in ("seed", "torch_threads", "options"):
        del shared[name]
    return {
        **shared,
        "batch_size": settings.batch_size,
        "n_batches": settings.n_batches,
        "n_seeds": options.seeds,
        "quick": options.quick,
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


if __name__ == "__main__":
    main()
