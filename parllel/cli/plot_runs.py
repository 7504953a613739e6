"""`parllel plot RUN...`: draw learning curves, one for all seeds of an experiment."""

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
    """Draw the curves, print where they are and which runs are left out; return the exit status."""
    output = Path(arguments.output)
    if not output.suffix:
        output = output.with_name(f"{output.name}.png")
    check_plot_path(output)  # now: reading many runs takes a while
    paths = [path for one in arguments.runs for path in _runs_at(Path(one))]
    # Each once: `plot runs runs/a` names one twice.
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
    # After all that can be refused: a wrong command leaves no folder.
    output.parent.mkdir(parents=True, exist_ok=True)
    plot_learning_curve(output, curves, ylabel=arguments.key)
    print(f"{_counted(len(curves), 'curve')} of {_counted(len(found), 'run')}: {output}")
    return 0


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _runs_at(path: Path) -> list[Path]:
    """Return the run at `path`, or all runs below it; ValueError without one."""
    found = find_runs(path)
    if not found:
        raise ValueError(f"{path}: no run is there or below")
    return found


def read_curves(paths: Iterable[Path], key: str) -> tuple[dict[Path, Curve], list[str]]:
    """Return the curves of the runs that logged numbers under a key, and why the others have none."""
    found: dict[Path, Curve] = {}
    problems = []
    for path in paths:
        kind = _kind_at(path)
        if kind != TRAINING:
            problems.append(
                f"{path}: expected a training run, got one of kind {kind!r}, which has no learning curve; "
                "`parllel runs` lists it"
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
    """Return the kind of a run; "training" if its record is damaged, which is no reason to hide its curve."""
    record = json_of(path / "run.json")
    return str(record.get("kind", TRAINING)) if isinstance(record, dict) else TRAINING


def curves_of(found: Mapping[Path, Curve], by: str) -> tuple[dict[str, Curve], list[str]]:
    """Return one curve per group of runs, by label, and remarks on how runs of several seeds were joined.

    by: as for `key_of`. The curve of several runs has a band.
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
        while label in curves:  # runs of another config may have the same name
            number += 1
            label = f"{name} #{number}{several}"
        curves[label] = curve
    return curves, remarks
