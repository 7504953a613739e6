"""Learning curves of two sides with the same seeds, trained one after the other.

Every training is written to the file of results as soon as it has ended, and a later start goes on with those
that are missing. It may run beside other programs: speed is not measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.end_to_end.comparing import (
    Point,
    difference_interval,
    learning_curve,
    likeness,
)
from benchmarks.end_to_end.report import draw_curves
from benchmarks.end_to_end.settings import TrainingSettings
from benchmarks.end_to_end.sides import Side
from benchmarks.end_to_end.training import LINE_S, Training, train
from benchmarks.harness.answers import table
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.results import Report, read, results_of, write
from benchmarks.peers import venvs


@dataclass(frozen=True)
class CurveStudy:
    """A question whether two sides learn alike.

    Attributes:
        name: of the results.
        what: what is trained, for people.
        ours, theirs: the sides, which are run in their first variant.
        settings: of a full training.
        intro: returns the beginning of the sentence before the table, from the settings of a report.
        n_last: number of episodes at the end of a training whose mean return the table shows.
    """

    name: str
    what: str
    ours: Side
    theirs: Side
    settings: TrainingSettings
    intro: Callable[[Mapping[str, Any]], str]
    n_last: int = 10

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both sides, ours first."""
        return self.ours, self.theirs

    def run(self, program: str) -> None:
        """Parse the command line, and train what the file of results lacks."""
        parser = argparse.ArgumentParser(
            prog=f"python -m {program}", description=f"Compare learning curves of {self.what}."
        )
        steps = self.settings.n_steps
        parser.add_argument("--seeds", type=int, default=5, metavar="N", help="trainings of a side")
        parser.add_argument("--steps", type=int, default=steps, metavar="N", help="of a training")
        parser.add_argument("--timeout", type=float, default=LINE_S, help="seconds for a batch")
        parser.add_argument("--output", type=Path, default=results_of(self.name))
        options = parser.parse_args()
        settings = replace(self.settings, n_steps=options.steps)
        report = self.begin(options.output, settings)
        for seed in range(options.seeds):
            for side in self.sides:
                self.add_training(report, side, replace(settings, seed=seed), options)
        report = read(options.output)
        print(f"\n{self.markdown(report)}")
        self.draw(report, options.output.with_suffix(".png"))

    def begin(self, path: Path, settings: TrainingSettings) -> Report:
        """Return what a file has, or a report without trainings; exit if it has other settings."""
        shared = {
            name: value
            for name, value in asdict(settings).items()
            if name not in ("seed", "torch_threads", "options")
        }
        shared["hidden_sizes"] = list(shared["hidden_sizes"])
        shared["quick"] = settings.n_steps < self.settings.n_steps
        if not path.exists():
            machine = {**describe_machine(), "load_average_1min": None}
            sides = {
                side.name: {"title": side.title, "libraries": {}, "trainings": []}
                for side in self.sides
            }
            return {"machine": machine, "settings": shared, "sides": sides}
        report = read(path)
        if report["settings"] != shared:
            sys.exit(
                f"{path} has other settings: {report['settings']}; move it, or name another file"
            )
        return report

    def add_training(
        self, report: Report, side: Side, settings: TrainingSettings, options: argparse.Namespace
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
        found["trainings"].append(self.summary(training))
        last = found["trainings"][-1]["last"]
        print(f"seed {settings.seed}: {side.title}: {last:,.0f}", flush=True)
        write(options.output, {**report, **self.comparison(report["sides"])})

    def summary(self, training: Training) -> dict[str, Any]:
        """Return the curve of a training, and the mean return of its last episodes."""
        episodes = [value for batch in training.returns for value in batch]
        last = episodes[-self.n_last :]
        curve = learning_curve(training.returns, training.settings.batch_size)
        return {
            "seed": training.settings.seed,
            "last": round(sum(last) / len(last), 1),
            "curve": [[point.steps, round(point.mean_return, 1)] for point in curve],
        }

    def comparison(self, sides: Mapping[str, Any]) -> dict[str, Any]:
        """Return how our curves differ from the other's; nothing before both have two."""
        trainings = [sides[side.name]["trainings"] for side in self.sides]
        if min(map(len, trainings)) < 2:
            return {}
        lasts = [[training["last"] for training in side] for side in trainings]
        low, high = difference_interval(lasts[0], lasts[1])
        curves = [
            [[Point(*point) for point in training["curve"]] for training in side]
            for side in trainings
        ]
        alike = likeness(*curves)
        means = [sum(side) / len(side) for side in lasts]
        return {
            "last_episodes": {
                "n_episodes": self.n_last,
                "ours": round(means[0], 1),
                "theirs": round(means[1], 1),
                "difference": round(means[0] - means[1], 1),
                "low": round(low, 1),
                "high": round(high, 1),
            },
            "learning_curves": {**alike._asdict(), "verdict": alike.verdict},
        }

    def markdown(self, report: Mapping[str, Any]) -> str:
        """Return the table for the documents with the chart."""
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
            f"{self.what} on {settings['env']}, {settings['n_steps']:,} steps with {n_seeds} seeds each"
            f"{self.intro(settings)}; mean return of the last {self.n_last} episodes of the training:",
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
        lines.append(f"![learning curves of {self.what}](../benchmarks/results/{self.name}.png)")
        return "\n".join(lines) + "\n"

    def draw(self, report: Mapping[str, Any], path: Path) -> None:
        """Draw the mean curves with the range of their seeds."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        for side in report["sides"].values():
            draw_curves(axes, side)
        axes.set_xlabel("environment steps")
        axes.set_ylabel("return")
        axes.legend(loc="upper left", fontsize=9)
        title = f"{self.what} on {report['settings']['env']}, mean and range of the seeds"
        axes.set_title(title, fontsize=10)
        figure.savefig(path, dpi=110)
