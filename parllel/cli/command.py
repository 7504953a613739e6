"""The `parllel` command: parse the command line, run the command, report errors.

A package declares its commands in one light module, which needs nothing but the argparse objects that it is
given. Packages above this one cannot import it, so the contract is made of names alone:

    def add_commands(commands):
        group = commands.add_parser("operators", help="...")         # a group nests further commands
        nested = group.add_subparsers(required=True, metavar="COMMAND")
        run = nested.add_parser("run", help="...")
        run.add_argument("spec")
        run.set_defaults(call="parllel.distributed.operators.workers.serving:run", extra="operators")

`set_defaults` says what `main` needs to know of a command:

    call   "module:function". The module is imported when the command is run; the function takes the parsed
           arguments and returns the exit status.
    extra  optional: the extra of setup.cfg that installs what the module of `call` imports.
    rest   optional: the positional argument with several values that also takes those after a flag.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from parllel.errors import ParllelError, install_command, notes_of
from parllel.system.start_program import start_program
from parllel.version import __version__

# `parllel --help` imports all of them, and with each the package that it is in: none may be slow to import.
DECLARATIONS = (
    "parllel.cli.run_commands",
    "parllel.cli.remote_commands",
    "parllel.cli.operators_commands",
    "parllel.cli.messaging_commands",
)
INTERRUPTED = 130  # 128 and the number of SIGINT, as a shell has it
_DESCRIPTION = "Inspect runs, continue them and plot them; play episodes between agents."
USER_ERROR = 2  # argparse's own exit status


class _Declaration(Protocol):
    """A module that declares commands."""

    def add_commands(self, commands: Any) -> None:
        """Add parsers to what `ArgumentParser.add_subparsers` returned."""


class _CommandParser(argparse.ArgumentParser):
    """A parser with --traceback; so are those of its subcommands, however deep.

    The flag may stand before or after the command: absent, it leaves no value that would hide the other's.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_argument(
            "--traceback",
            action="store_true",
            default=argparse.SUPPRESS,
            help="show the traceback of an error, not only its message",
        )


def main(argv: Sequence[str] | None = None, declarations: Sequence[str] = DECLARATIONS) -> int:
    """Run the command that the command line names and return the exit status.

    A user's mistake is reported in one sentence on standard error, with exit status 2; the sentence names the
    line of the user's code that raised it, if there is one. An error during training keeps its traceback.

    Args:
        argv: default the arguments of the process.
        declarations: modules that declare commands, as this module describes at its top.

    Raises:
        SystemExit: with status 2 if the command line is wrong, 0 after `--help`.
    """
    if argv is None:
        start_program()
    arguments = _parse(argv, declarations)
    try:
        status = _load_command(arguments.call, getattr(arguments, "extra", None))(arguments)
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
    parser = _CommandParser(prog="parllel", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"parllel {__version__}")
    _add_declared(parser, declarations)
    arguments, rest = parser.parse_known_args(argv)
    # argparse adds nothing to a list after the first flag: `resume RUN --trust n_steps=100`.
    values = getattr(arguments, getattr(arguments, "rest", ""), None)
    if rest and (values is None or any(value.startswith("-") for value in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if values is not None:
        setattr(arguments, arguments.rest, [*values, *rest])
    return arguments


def _add_declared(parser: argparse.ArgumentParser, modules: Sequence[str]) -> None:
    """Add the commands of modules to a parser, in their order."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in modules:
        declaration: _Declaration = importlib.import_module(name)
        declaration.add_commands(commands)


def _load_command(call: str, extra: str | None) -> Callable[[argparse.Namespace], int]:
    """Import what a command runs.

    Raises:
        ImportError: if a library is missing; names the extra that installs it.
    """
    module, _, function = call.partition(":")
    try:
        found: Callable[[argparse.Namespace], int] = getattr(
            importlib.import_module(module), function
        )
    except ModuleNotFoundError as error:
        # A missing module of our own is a mistake that no extra mends.
        if extra is None or str(error.name).partition(".")[0] == __name__.partition(".")[0]:
            raise
        raise ImportError(
            f"this command needs {error.name}: {install_command(extra)}", name=error.name
        ) from error
    return found
