"""Declaration of `parllel runs`, `show`, `play`, `export`, `resume`, `repeat`, `sweep` and `plot`.

Imports only argparse, because `parllel --help` imports every module that declares commands.
"""

from __future__ import annotations

import argparse
from typing import Any

DEFAULT_FOLDER = "runs"  # where the examples' `train` creates run folders

_EXECUTES = (
    "This executes the script recorded in the run's folder. A script that is outside the current folder, or "
    "came with the run, is refused unless --trust is given."
)


def add_commands(commands: Any) -> None:
    """Add `runs`, `show`, `play`, `export`, `resume`, `repeat`, `sweep` and `plot`."""
    _add_runs(commands)
    _add_show(commands)
    _add_play(commands)
    _add_export(commands)
    _add_resume(commands)
    _add_repeat(commands)
    _add_sweep(commands)
    _add_plot(commands)


def _add_runs(commands: Any) -> None:
    runs = commands.add_parser("runs", help="list the runs in a folder")
    runs.set_defaults(call="parllel.cli.list_runs:run")
    runs.add_argument(
        "folder",
        nargs="?",
        default=DEFAULT_FOLDER,
        metavar="FOLDER",
        help=f"default: {DEFAULT_FOLDER}",
    )
    runs.add_argument("--json", action="store_true", help="print one JSON object per line")


def _add_show(commands: Any) -> None:
    show = commands.add_parser(
        "show",
        help="play episodes with the newest checkpoint of a run",
        description=f"Play episodes with the newest checkpoint of a run. {_EXECUTES}",
    )
    show.set_defaults(call="parllel.cli.show_policy:run")
    _add_run(show)
    _add_best(show)
    show.add_argument(
        "--episodes", type=int, default=3, metavar="N", help="number of episodes; default: 3"
    )
    show.add_argument(
        "--video",
        metavar="FILE",
        help="write a .mp4 or .gif file; default: open a window, or write RUN/policy.mp4 without a display",
    )
    show.add_argument(
        "--page",
        action="store_true",
        help="show them in a page for a browser; needs the extra `operators`",
    )
    show.add_argument(
        "--port", type=int, help="port of the page on this machine; default: a free one"
    )
    show.add_argument("--fps", type=float, help="frames per second; default: the environment's")
    show.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of the first episode; the others use N + 1, ...; default: 0",
    )
    show.add_argument("--column", type=int, default=0, help="index of the environment; default: 0")


def _add_play(commands: Any) -> None:
    play = commands.add_parser(
        "play",
        help="play episodes with a run's policy or another agent, and print the returns",
        description="Play one episode per seed and print its return and length, then the mean return with "
        f"its standard error. For a run's folder: {_EXECUTES} A file is executed.",
    )
    play.set_defaults(call="parllel.cli.play_policy:run")
    play.add_argument(
        "spec", metavar="SPEC", help="folder of a run, file.py, file.py:name, random or noop"
    )
    play.add_argument(
        "--env",
        metavar="NAME",
        help="gymnasium id, module:id or file.py:function; default: the run's environment",
    )
    play.add_argument(
        "--seeds", default="0-9", metavar="N-M", help="such as 0-99 or 3,5,8-10; default: 0-9"
    )
    play.add_argument("--json", action="store_true", help="print one JSON object per line")
    add_trust(play)


def _add_export(commands: Any) -> None:
    export = commands.add_parser(
        "export",
        help="write a run's policy to a file or folder that acts without parllel",
        description="Write the policy of a run's newest checkpoint to a file, after checking that the file "
        f"takes the same actions. {_EXECUTES}",
    )
    export.set_defaults(call="parllel.cli.export_policy:run", extra="torch")
    _add_run(export)
    export.add_argument(
        "--to",
        required=True,
        metavar="FILE",
        help="a name that ends in .onnx (ONNX) or .pt (TorchScript), or FOLDER/ for a new folder that the "
        "Hugging Face Hub takes",
    )
    _add_best(export)
    export.add_argument(
        "--params",
        action="store_true",
        help="also return the parameters of the distribution, or the action values",
    )
    _add_changes(export)


def _add_resume(commands: Any) -> None:
    resume = commands.add_parser(
        "resume",
        help="continue a run from its newest checkpoint",
        description=f"Continue a run from its newest checkpoint. {_EXECUTES}",
    )
    resume.set_defaults(call="parllel.cli.rerun:resume_run")
    _add_run(resume)
    _add_changes(resume)


def _add_repeat(commands: Any) -> None:
    repeat = commands.add_parser(
        "repeat",
        help="repeat a run from the beginning",
        description=f"Repeat a run from the beginning, in a new folder. {_EXECUTES}",
    )
    repeat.set_defaults(call="parllel.cli.rerun:repeat_run")
    _add_run(repeat)
    _add_changes(repeat)
    repeat.add_argument(
        "--runs",
        metavar="DIR",
        help="where to create the new run's folder; default: next to the old one",
    )
    repeat.add_argument(
        "--name", help="name of the new run's folder; default: the old name plus a number"
    )


def _add_sweep(commands: Any) -> None:
    sweep = commands.add_parser(
        "sweep",
        help="train a script with all combinations of settings, several runs at a time",
        description="Train a script with every combination of the values. Started again with the same "
        "arguments, it continues: runs that have ended are kept, all others are resumed from their newest "
        "checkpoint or started again.",
    )
    sweep.set_defaults(call="parllel.cli.sweeps.command:run", rest="settings")
    sweep.add_argument("script", metavar="SCRIPT", help="file with the function `build`")
    sweep.add_argument(
        "settings",
        nargs="*",
        default=(),
        metavar="KEY=VALUES",
        help="values of a key of the config: ppo.learning_rate=1e-4,3e-4 or seed=0-4",
    )
    sweep.add_argument(
        "--into",
        metavar="FOLDER",
        help=f"folder of the sweep; default: {DEFAULT_FOLDER}/sweeps/ and the name of the script",
    )
    sweep.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="runs at a time; default: usable cores divided by --cores-per-run",
    )
    sweep.add_argument(
        "--cores-per-run",
        type=int,
        default=1,
        metavar="N",
        help="cores that a run uses, and threads of its libraries; default: 1",
    )
    _add_key(sweep)
    _add_optuna(sweep)


def _add_optuna(sweep: argparse.ArgumentParser) -> None:
    sweep.add_argument(
        "--optuna",
        action="store_true",
        help="let Optuna choose values from log:1e-5..1e-3, float:0..1, int:2..10, logint:16..512 or a list",
    )
    sweep.add_argument(
        "--trials", type=int, metavar="N", help="runs that Optuna chooses in all; default: 20"
    )
    sweep.add_argument(
        "--sampler", choices=("tpe", "gp", "random"), help="how Optuna chooses; default: tpe"
    )
    sweep.add_argument(
        "--pruner",
        choices=("none", "median", "halving", "hyperband"),
        help="ends runs whose returns are low; default: none",
    )


def _add_plot(commands: Any) -> None:
    plot = commands.add_parser("plot", help="plot the learning curves of runs")
    plot.set_defaults(call="parllel.cli.plot_runs:run", rest="runs")
    plot.add_argument("runs", nargs="+", metavar="RUN", help="folder of one run, or of several")
    plot.add_argument(
        "-o",
        "--output",
        default="curves.png",
        metavar="FILE",
        help="image file; default: curves.png",
    )
    _add_key(plot)
    plot.add_argument(
        "--by",
        choices=("config", "name", "run"),
        default="config",
        help="draw one curve per group of runs whose configs differ only in the seed, per group whose names "
        "differ only in the seed, or per run; default: config",
    )


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key",
        default="evaluation/return/mean",
        help="column of progress.csv; default: evaluation/return/mean",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    add_trust(parser)


def _add_best(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--best",
        action="store_true",
        help="use the checkpoint with the best evaluation instead of the newest",
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add --trust, the permission required by `parllel.runs.trust.check_source`."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="execute a run's script wherever it is; for your own runs in other folders",
    )


def add_repeated(
    parser: Any, flag: str, metavar: str, meaning: str, dest: str | None = None
) -> None:
    """Add a repeatable flag, whose values are collected in a list."""
    names = {} if dest is None else {"dest": dest}
    meaning = f"{meaning}; may be given several times"
    parser.add_argument(flag, action="append", default=[], metavar=metavar, help=meaning, **names)


def add_server(parser: argparse.ArgumentParser, port: int, token: str, clients: str) -> None:
    """Add a server's --host, --port, --token-file and --allow-host.

    token: help text of the token file.
    clients: plural noun for the clients, used in help texts.
    """
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1"
    )
    parser.add_argument(
        "--port", type=int, default=port, help=f"0 picks a free port; default: {port}"
    )
    parser.add_argument("--token-file", metavar="FILE", help=token)
    add_repeated(parser, "--allow-host", "NAME", f"accept {clients} that use this host name")


def _add_changes(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(rest="changes")
    parser.add_argument(
        "changes",
        nargs="*",
        default=(),  # without it, argparse lists them as required when another argument is missing
        metavar="KEY=VALUE",
        help="change the config: ppo.learning_rate=1e-4",
    )
