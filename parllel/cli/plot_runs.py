"""`parllel plot RUN...`: curves of runs, those of different seeds together."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from parllel.cli.find_runs import find_runs
from parllel.cli.seed_groups import groups_of, join, member, without_seed
from parllel.pictures import Curve, plot_learning_curve, read_curve


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
    curves, remarks = curves_of(found, arguments.by)
    if not any(curves.values()):
        raise ValueError("nothing to draw: the runs have no steps in common; try --by run")
    for remark in remarks:
        print(remark, file=sys.stderr)
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


def curves_of(found: Mapping[Path, Curve], by: str) -> tuple[dict[str, Curve], list[str]]:
    """Return a curve for each group of runs by its label, and what was done to runs to make one of several.

    by: as for `key_of`; groups of several have a band.
    """
    curves: dict[str, Curve] = {}
    remarks = []
    for members in groups_of(found, by).values():
        name, several = members[0].name, ""
        curve = found[members[0]]
        if len(members) > 1:
            curve, joined, done = join([member(path, found[path]) for path in members])
            remarks += done
            whole = "" if joined == len(members) else f" of {len(members)}"
            name, several = without_seed(name), f" ({joined}{whole} runs)"
        label, number = f"{name}{several}", 1
        while label in curves:  # another config under the same name
            number += 1
            label = f"{name} #{number}{several}"
        curves[label] = curve
    return curves, remarks
