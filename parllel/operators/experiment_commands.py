"""`parllel operators run | results | workers`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.util import find_spec

from rich.console import Console
from rich.table import Table

from parllel.operators.experiment import Experiment
from parllel.operators.experiment_file import load_experiment
from parllel.operators.experiment_folder import open_experiment, read_results
from parllel.operators.multi_agent_config import MultiAgentConfig
from parllel.operators.operator_config import OperatorConfig
from parllel.operators.results import results_as_json
from parllel.operators.results_table import print_results, results_console
from parllel.runs import check_source

# What a kind is called, its workers (modules of this package), and what its config has to name.
_KINDS = (
    ("rl", ("rl_worker",), "policy: folder of a run, or a file that CleanRL saved"),
    ("policy", ("policy_worker",), "policy: anything that `parllel play` takes, or a URL"),
    ("baseline", ("operators_worker",), "policy: random, noop or file.py:name"),
    ("human", ("human_worker",), "a terminal"),
    ("llm", ("operators_worker", "balrog_worker", "chess_worker"), "settings: model, base_url"),
    ("chess", ("chess_worker",), "policy: random or file.py:name; it is a player of a game"),
    ("program", (), "worker: a command line of your own"),
)


def run(arguments: argparse.Namespace) -> int:
    """Play an experiment, print its results, and return the exit status."""
    with load_experiment(arguments.file, arguments.changes) as experiment:
        for folder in _runs_of(experiment):
            check_source(folder, trusted=arguments.trust)
        result = experiment.run(arguments.dir, progress=arguments.progress, script=arguments.file)
    print_results(result.groups, _console())
    print(f"folder: {result.folder}")
    for said in (*result.notes, *result.failures):
        print(said, file=sys.stderr)
    if result.stopped_by is not None:
        print(
            f"{result.stopped_by}: stopped; what was played is in {result.folder}", file=sys.stderr
        )
    return result.exit_status


def _runs_of(experiment: Experiment) -> list[str]:
    """Return the folders of the runs that operators of an experiment act by."""
    configs: list[OperatorConfig] = []
    for one in experiment.operators:
        configs += one.players.values() if isinstance(one, MultiAgentConfig) else [one]
    policies = [config.policy for config in configs if config.policy is not None]
    return [policy for policy in policies if os.path.isfile(os.path.join(policy, "run.json"))]


def results(arguments: argparse.Namespace) -> int:
    """Print the results of an experiment's folder, and return the exit status."""
    record = open_experiment(arguments.folder)
    found = read_results(record.path, record.config)
    if arguments.json:
        print(json.dumps(results_as_json(found), indent=2))
    else:
        print_results(found, _console())
    return 0


def workers(arguments: argparse.Namespace) -> int:
    """Print the kinds of operators, and return the exit status."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("kind", "worker", "needs"):
        table.add_column(name, overflow="fold")
    for kind, modules, needs in _KINDS:
        missing = [name for name in modules if find_spec(f"parllel.operators.{name}") is None]
        absent = f" (this version has no {', '.join(missing)})" if missing else ""
        table.add_row(kind, ", ".join(modules) or "-", needs + absent)
    _console().print(table)
    return 0


def _console() -> Console:
    return results_console(is_seen=sys.stdout is not None and sys.stdout.isatty())
