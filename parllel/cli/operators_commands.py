"""Declaration of `parllel operators ...`, the commands that play experiments between operators.

Imports only argparse and another such module, because `parllel --help` imports every module that declares
commands.
"""

from __future__ import annotations

import argparse
from typing import Any

from parllel.cli.run_commands import add_repeated, add_server, add_trust

# Modules NAME_worker of `parllel.distributed.operators.workers`.
WORKERS = ("balrog", "chess", "human", "operators", "policy", "rl")
_CALLS = "parllel.distributed.operators.experiments.experiment_commands"


def add_commands(commands: Any) -> None:
    """Add `operators run`, `dashboard`, `results`, `workers` and `worker`."""
    group = commands.add_parser(
        "operators", help="compare agents, each in a separate process, on the same episodes"
    )
    nested = group.add_subparsers(required=True, metavar="COMMAND")
    _add_run(nested)
    _add_dashboard(nested)
    _add_results(nested)
    _add_workers(nested)
    _add_worker(nested)


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="play an experiment and print its results",
        description="Play the experiment defined in a file and print its results. A .py file is executed, as "
        "are the files it names and the scripts of runs. A run's script that is outside the current folder, "
        "or came with the run, is refused unless --trust is given. The exit status is 1 if an operator "
        "failed.",
    )
    _call(run, "run")
    run.add_argument("file", metavar="FILE", help=".py or .toml file that defines `experiment`")
    meaning = "set a parameter of the function `experiment`, or a value of the TOML file"
    add_repeated(run, "--set", "NAME=VALUE", meaning, dest="changes")
    run.add_argument(
        "--dir", default="runs", metavar="DIR", help="where to create its folder; default: runs"
    )
    run.add_argument(
        "--resume",
        metavar="FOLDER",
        help="continue the experiment in this folder after it was stopped or killed; finished episodes are "
        "not played again",
    )
    add_repeated(
        run,
        "--budget",
        "tokens=N",
        "stop once all operators together have used this much, replacing the experiment's budget; also "
        "calls=N and cost=X",
    )
    run.add_argument("--progress", action="store_true", help="show a progress bar per operator")
    add_trust(run)


def _add_dashboard(commands: Any) -> None:
    dashboard = commands.add_parser(
        "dashboard",
        help="watch and control operators in a browser",
        description="Serve a web page on which operators are launched, stepped and played side by side, "
        "until SIGTERM or Ctrl-C. It is for the user of this machine: anyone who has the printed address, "
        "with its token, can start programs here. Files are executed like those of `operators run`: a single "
        "file at the start, as its operators become the first cards; several files when they are watched.",
    )
    dashboard.set_defaults(
        call="parllel.distributed.operators.dashboard.dashboard_command:run", extra="operators"
    )
    dashboard.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help=".py or .toml files that define experiments to watch",
    )
    dashboard.add_argument(
        "--dir", default="runs", metavar="DIR", help="where to create its folder; default: runs"
    )
    dashboard.add_argument(
        "--board", metavar="FOLDER", help="continue with the cards of an earlier dashboard"
    )
    token = "file with the token that pages must send; default: `token` in its folder, created if missing"
    add_server(dashboard, 8700, token, "pages")
    dashboard.add_argument("--open", action="store_true", help="open the page in a browser")
    add_trust(dashboard)


def _add_results(commands: Any) -> None:
    results = commands.add_parser(
        "results", help="print the results of an experiment, finished or interrupted"
    )
    _call(results, "results")
    results.add_argument("folder", metavar="FOLDER", help="folder of the experiment")
    results.add_argument("--json", action="store_true", help="print JSON")


def _add_workers(commands: Any) -> None:
    workers = commands.add_parser(
        "workers", help="list the kinds of operators and their requirements"
    )
    _call(workers, "workers")


def _add_worker(commands: Any) -> None:
    worker = commands.add_parser(
        "worker",
        help="play episodes with a single worker, without an experiment",
        description="Play episodes with a single worker and print a line of JSON for each. `worker NAME "
        "--help` lists the worker's own options.",
    )
    worker.set_defaults(
        call="parllel.distributed.operators.workers.worker_main:run_named", extra="operators"
    )
    worker.add_argument("name", choices=WORKERS, metavar="NAME", help=", ".join(WORKERS))
    worker.add_argument("options", nargs=argparse.REMAINDER, help="of the worker")


def _call(parser: argparse.ArgumentParser, function: str) -> None:
    parser.set_defaults(call=f"{_CALLS}:{function}", extra="operators")
