"""The arguments of `parllel`, and what becomes of mistakes in them.

A subcommand's module is imported when it is called, so that `parllel --help` is quick.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from parllel.errors import ParllelError
from parllel.version import __version__

INTERRUPTED = 130  # the exit status of what Ctrl-C ended: 128 and the signal's number
MISTAKE = 2
_MODULES = {
    "runs": "parllel.cli.list_runs",
    "show": "parllel.cli.show_policy",
    "resume": "parllel.cli.resume_run",
    "repeat": "parllel.cli.repeat_run",
    "plot": "parllel.cli.plot_runs",
}
_WORDS = {
    "resume": "changes",
    "repeat": "changes",
    "plot": "runs",
}  # which take any number of words
# Help of the commands that do.
_EXECUTES = (
    "This executes the script that the run's folder names. One that does not lie below the folder that you "
    "are in, or that came with the run, is refused unless --trust is given."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says and return the exit status.

    A mistake of the user is one sentence on the standard error stream and status 2, with the line if it came
    out of code that is not ours; what goes wrong within a training has its traceback.
    """
    arguments = _parse(argv)
    try:
        module = importlib.import_module(_MODULES[arguments.command])
        status: int = module.run(arguments)
        if sys.stdout is not None:  # closed by whoever began this process
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except (OSError, ValueError, TypeError, ImportError, ParllelError) as error:
        from parllel.runners import one_sentence, within_training

        if arguments.traceback or within_training(error):
            raise
        if isinstance(error, BrokenPipeError):  # `parllel runs | head` has seen enough
            # The interpreter flushes once more at its end, and would complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"parllel: {one_sentence(error, '--traceback shows more')}", file=sys.stderr)
        return MISTAKE


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    # argparse takes no more of a list of words after the first flag: `resume RUN --trust n_steps=100`.
    words = getattr(arguments, _WORDS.get(arguments.command, ""), None)
    if rest and (words is None or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if words is not None:
        words += rest
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="parllel", description="Look at runs, and go on with them."
    )
    parser.add_argument("--version", action="version", version=f"parllel {__version__}")
    _add_traceback(parser, default=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    runs = commands.add_parser("runs", help="list the runs of a folder")
    runs.add_argument("folder", nargs="?", default="runs", metavar="FOLDER", help="default: runs")
    runs.add_argument("--json", action="store_true", help="one JSON object per line")

    _add_show(commands)
    resume = commands.add_parser(
        "resume",
        help="go on with a run from its newest checkpoint",
        description=f"Go on with a run from its newest checkpoint. {_EXECUTES}",
    )
    _add_rerun(resume)
    repeat = commands.add_parser(
        "repeat",
        help="do a run again, from its beginning",
        description=f"Do a run again, from its beginning. {_EXECUTES}",
    )
    _add_rerun(repeat)
    repeat.add_argument(
        "--runs",
        metavar="DIR",
        help="where the new run's folder is made; default: beside the old one",
    )
    repeat.add_argument(
        "--name", help="of the new run's folder; default: that of the old one, and a number"
    )

    _add_plot(commands)
    for command in commands.choices.values():
        _add_traceback(command, default=argparse.SUPPRESS)  # after the command as well
    return parser


def _add_show(commands: Any) -> None:
    show = commands.add_parser(
        "show",
        help="play episodes with the newest checkpoint of a run",
        description=f"Play episodes with the newest checkpoint of a run. {_EXECUTES}",
    )
    _add_run(show)
    show.add_argument(
        "--best",
        action="store_true",
        help="play the checkpoint of the best evaluation, not the newest",
    )
    show.add_argument("--episodes", type=int, default=3, metavar="N", help="default: 3")
    show.add_argument(
        "--video", metavar="FILE", help="write .mp4 or .gif; default: a window, or RUN/policy.mp4"
    )
    show.add_argument("--fps", type=float, help="pictures per second; default: the environment's")
    show.add_argument("--seed", type=int, help="of the episodes; default: those that come next")
    show.add_argument("--column", type=int, default=0, help="which environment; default: 0")


def _add_plot(commands: Any) -> None:
    plot = commands.add_parser("plot", help="draw the curves of runs")
    plot.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, or of several")
    plot.add_argument(
        "-o", "--output", default="curves.png", metavar="FILE", help="default: curves.png"
    )
    plot.add_argument(
        "--key",
        default="evaluation/return/mean",
        help="column of progress.csv; default: evaluation/return/mean",
    )
    plot.add_argument(
        "--by",
        choices=("config", "name", "run"),
        default="config",
        help="one curve for runs whose configs differ in their seed alone, for runs whose names do, or "
        "for each run; default: config",
    )


def _add_traceback(parser: argparse.ArgumentParser, default: Any) -> None:
    parser.add_argument(
        "--traceback",
        action="store_true",
        default=default,
        help="show the traceback of an error, not only its message",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="execute the script wherever it is, for a run that you made in another folder",
    )


def _add_rerun(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument(
        "changes", nargs="*", metavar="KEY=VALUE", help="change the config: ppo.learning_rate=1e-4"
    )
