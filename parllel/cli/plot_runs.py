"""`parllel plot RUN...`: curves of runs, those of different seeds together."""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from parllel.cli.find_runs import find_runs, json_of
from parllel.runners.learning_curve import Curve, curve_with_band, plot_learning_curve, read_curve

_SEED_IN_NAME = re.compile(r"[-_.]?seed[-_=]?\d+", re.IGNORECASE)


def run(arguments: argparse.Namespace) -> int:
    """Draw the picture, say where it is and which runs are not in it, and return the exit status."""
    output = Path(arguments.output)
    if not output.suffix:
        output = output.with_name(f"{output.name}.png")
    paths = [path for one in arguments.runs for path in _runs_at(Path(one))]
    found, problems = read_curves(dict.fromkeys(paths), arguments.key)  # some may be named twice
    if not found:
        raise ValueError(f"nothing to draw: {problems[0]}")
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    curves = curves_of(found, arguments.by)
    if not any(curves.values()):
        raise ValueError("nothing to draw: the runs have no steps in common; try --by run")
    output.parent.mkdir(parents=True, exist_ok=True)
    plot_learning_curve(output, curves, ylabel=arguments.key)
    print(f"{_counted(len(curves), 'curve')} of {_counted(len(found), 'run')}: {output}")
    return 0


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _runs_at(path: Path) -> list[Path]:
    """Return the run at `path`, or those below it."""
    found = find_runs(path)
    if not found:
        raise ValueError(f"{path}: no run is there or below")
    return found


def read_curves(paths: Iterable[Path], key: str) -> tuple[dict[Path, Curve], list[str]]:
    """Return the curves of those runs that have logged something under a key, and what the others lack."""
    found: dict[Path, Curve] = {}
    problems = []
    for path in paths:
        try:
            curve = read_curve(path / "progress.csv", key)
        except FileNotFoundError:
            problems.append(f"{path}: there is no progress.csv")
        except (OSError, ValueError) as error:
            problems.append(str(error))
        except (IndexError, csv.Error) as error:
            problems.append(f"{path / 'progress.csv'}: damaged: {error}")
        else:
            if curve:
                found[path] = curve
            else:
                problems.append(f"{path}: no number under {key!r} yet")
    return found, problems


def curves_of(found: Mapping[Path, Curve], by: str) -> dict[str, Curve]:
    """Return a curve for each group of runs, by its label; groups of several have a band.

    by: "config": runs of one build function whose config.json differ in `seed` alone are a group; "name":
        runs whose paths differ in `seed` and a number alone; "run": each is one.
    """
    groups: dict[str, list[Path]] = {}
    for path in found:
        groups.setdefault(_key_of(path, by), []).append(path)
    curves: dict[str, Curve] = {}
    for members in groups.values():
        name = members[0].name if len(members) == 1 else without_seed(members[0].name)
        several = f" ({len(members)} runs)" if len(members) > 1 else ""
        label, number = f"{name}{several}", 1
        while label in curves:  # another config under the same name
            number += 1
            label = f"{name} #{number}{several}"
        of_group = [found[path] for path in members]
        curves[label] = of_group[0] if len(members) == 1 else curve_with_band(of_group)
    return curves


def _key_of(path: Path, by: str) -> str:
    if by == "run":
        return str(path.resolve())
    if by == "name":
        return str(path.resolve().parent / without_seed(path.name))
    config = json_of(path / "config.json")
    if isinstance(config, dict):
        config = {name: value for name, value in config.items() if name != "seed"}
    record = json_of(path / "run.json")
    build = record.get("build") if isinstance(record, dict) else None
    return json.dumps([build, config], sort_keys=True)


def without_seed(name: str) -> str:
    """Return the name of a run without its seed: `ppo-seed3` and `ppo-seed3-2` are `ppo` and `ppo-2`."""
    return _SEED_IN_NAME.sub("", name) or name
