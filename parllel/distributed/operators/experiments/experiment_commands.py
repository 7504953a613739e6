"""Commands `parllel operators run`, `results` and `workers`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rich.console import Console
from rich.table import Table

from parllel.distributed.operators.experiments.experiment_file import load_experiment
from parllel.distributed.operators.experiments.experiment_folder import (
    open_experiment,
    read_results,
    unfinished_part,
)
from parllel.distributed.operators.experiments.results import results_as_json
from parllel.distributed.operators.experiments.results_report import print_results, results_console
from parllel.distributed.operators.protocol.operator_kinds import KINDS
from parllel.distributed.operators.trusted_runs import check_runs


def run(arguments: argparse.Namespace) -> int:
    """Play an experiment and print its results. Returns the exit status."""
    with load_experiment(arguments.file, arguments.changes) as experiment:
        check_runs(experiment.operators, trusted=arguments.trust)
        if arguments.budget:
            experiment = replace(experiment, budget=_budget(arguments.budget))
        left = None if arguments.resume else unfinished_part(arguments.dir, experiment.as_json())
        if left is not None:
            print(
                f"{left[0]} has {left[1]} episodes of this experiment, which was not finished; use --resume "
                f"{left[0]} to continue it. Starting anew.",
                file=sys.stderr,
            )
        result = experiment.run(
            arguments.dir,
            progress=arguments.progress,
            script=arguments.file,
            resume=arguments.resume,
            say=partial(print, flush=True),
        )
    print_results(result.groups, _console())
    print(f"folder: {result.folder}")
    for sentence in (*result.notes, *result.failures, *result.warnings):
        print(sentence, file=sys.stderr)
    if result.stopped_by is not None:
        more = " and a larger --budget" if result.stopped_by == "budget" else ""
        played = ", ".join(
            f"{operator.operator_id} {operator.ended + operator.failed} of {operator.asked}"
            for group in result.groups
            for operator in group.operators
        )
        print(
            f"{result.stopped_by}: stopped; played: {played} episodes, in {result.folder}; to continue, use "
            f"--resume {result.folder}{more}",
            file=sys.stderr,
        )
    return result.exit_status


def _budget(limits: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for limit in limits:
        name, _, text = limit.partition("=")
        try:
            # Tokens and calls are whole numbers.
            found[name] = float(text) if name == "cost" else int(text)
        except ValueError:
            raise ValueError(
                f"--budget: expected tokens=N, calls=N or cost=X, got {limit!r}"
            ) from None
    return found


def results(arguments: argparse.Namespace) -> int:
    """Print the results of an experiment's folder. Returns the exit status."""
    record = open_experiment(arguments.folder)
    found = read_results(record.path, record.config)
    if arguments.json:
        print(json.dumps(results_as_json(found), indent=2))
    else:
        print_results(found, _console())
    return 0


def workers(arguments: argparse.Namespace) -> int:
    """Print the available kinds of operators. Returns the exit status."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("kind", "worker", "needs"):
        table.add_column(name, overflow="fold")
    for kind in KINDS:
        missing = kind.missing()
        absent = f" (this version has no {', '.join(missing)})" if missing else ""
        table.add_row(kind.name, ", ".join(kind.workers) or "-", kind.needs + absent)
    _console().print(table)
    return 0


def _console() -> Console:
    return results_console(is_seen=sys.stdout is not None and sys.stdout.isatty())
