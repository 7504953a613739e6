"""The `parllel` command: parse the command line, run the command, report errors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from parllel.cli.declaration import DECLARATIONS, CommandParser, add_declared, load_command
from parllel.errors import ParllelError, notes_of
from parllel.system.start_program import start_program
from parllel.version import __version__

INTERRUPTED = 130  # 128 and the number of SIGINT, as a shell has it
_DESCRIPTION = "Inspect runs, continue them and plot them; play episodes between agents."
USER_ERROR = 2  # argparse's own exit status


def main(argv: Sequence[str] | None = None, declarations: Sequence[str] = DECLARATIONS) -> int:
    """Run the command that the command line names and return the exit status.

    A user's mistake is reported in one sentence on standard error, with exit status 2; the sentence names the
    line of the user's code that raised it, if there is one. An error during training keeps its traceback.

    Args:
        argv: default the arguments of the process.
        declarations: modules that declare commands, see `parllel.cli.declaration`.

    Raises:
        SystemExit: with status 2 if the command line is wrong, 0 after `--help`.
    """
    if argv is None:
        start_program()
    arguments = _parse(argv, declarations)
    try:
        status = load_command(arguments.call, getattr(arguments, "extra", None))(arguments)
        if sys.stdout is not None:  # None if the process was started with it closed
            sys.stdout.flush()
        return status
    except KeyboardInterrupt as interrupt:
        for note in notes_of(interrupt)[-1:]:  # those before are of what was at work
            print(f"parllel: {note}", file=sys.stderr)
        return INTERRUPTED
    except (OSError, ValueError, TypeError, ImportError, ParllelError) as error:
        from parllel.runners.user_errors import one_sentence, within_training

        if hasattr(arguments, "traceback") or within_training(error):
            raise
        if isinstance(error, BrokenPipeError):  # the reader has gone: `parllel runs | head`
            # The interpreter flushes standard output as it exits, which would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"parllel: {one_sentence(error, '--traceback shows more')}", file=sys.stderr)
        return USER_ERROR


def _parse(argv: Sequence[str] | None, declarations: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(prog="parllel", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"parllel {__version__}")
    add_declared(parser, declarations)
    arguments, rest = parser.parse_known_args(argv)
    # argparse adds nothing to a list after the first flag: `resume RUN --trust n_steps=100`.
    values = getattr(arguments, getattr(arguments, "rest", ""), None)
    if rest and (values is None or any(value.startswith("-") for value in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if values is not None:
        setattr(arguments, arguments.rest, [*values, *rest])
    return arguments
