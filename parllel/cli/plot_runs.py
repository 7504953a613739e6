"""`parllel plot RUN...`: learning curves, one for all seeds of an experiment."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from parllel.cli.seed_groups import groups_of, join, json_of, member, without_seed
from parllel.pictures.learning_curve import Curve, check_plot_path, plot_learning_curve, read_curve
from parllel.runs.run_folder import find_runs
from parllel.runs.run_record import TRAINING


def run(arguments: argparse.Namespace) -> int:
    """Plot the curves; print the file's path and the runs that are left out. Returns the exit status."""
    output = Path(arguments.output)
    if not output.suffix:
        output = output.with_name(f"{output.name}.png")
    check_plot_path(output)  # early, as reading many runs takes a while
    paths = [path for given in arguments.runs for path in _runs_at(Path(given))]
    # Without duplicates: `plot runs runs/a` names a run twice.
    found, problems = read_curves(dict.fromkeys(paths), arguments.key)
    if not found:
        raise ValueError(f"nothing to draw: {problems[0]}")
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    curves, remarks = curves_of(found, arguments.by)
    if not any(curves.values()):
        raise ValueError("nothing to draw: the runs have no steps in common; try --by run")
    for remark in remarks:
        print(remark, file=sys.stderr)
    # Last, so that a command that fails leaves no folder behind.
    output.parent.mkdir(parents=True, exist_ok=True)
    plot_learning_curve(output, curves, ylabel=arguments.key)
    print(f"{_counted(len(curves), 'curve')} of {_counted(len(found), 'run')}: {output}")
    return 0


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _runs_at(path: Path) -> list[Path]:
    """Return the run at `path` or all runs below it. Raises ValueError if there is none."""
    found = find_runs(path)
    if not found:
        raise ValueError(
            f"{path}: expected a folder that contains one or more runs, found no run.json"
        )
    return found


def read_curves(paths: Iterable[Path], key: str) -> tuple[dict[Path, Curve], list[str]]:
    """Return the curves of the runs that logged a key, and for each other run the reason it has none."""
    found: dict[Path, Curve] = {}
    problems = []
    for path in paths:
        kind = _kind_at(path)
        if kind != TRAINING:
            problems.append(
                f"{path}: expected a training run, got one of kind {kind!r}, which has no learning curve; "
                "see `parllel runs`"
            )
            continue
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


def _kind_at(path: Path) -> str:
    """Return the kind of a run. A damaged record counts as "training", so that its curve is not hidden."""
    record = json_of(path / "run.json")
    return str(record.get("kind", TRAINING)) if isinstance(record, dict) else TRAINING


def curves_of(found: Mapping[Path, Curve], by: str) -> tuple[dict[str, Curve], list[str]]:
    """Return one curve per group of runs, keyed by label, and remarks on how seeds were joined.

    A curve that joins several runs has a band.

    by: how runs are grouped, as for `key_of`.
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
        while label in curves:  # runs with different configs may share a name
            number += 1
            label = f"{name} #{number}{several}"
        curves[label] = curve
    return curves, remarks
