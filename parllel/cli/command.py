"""The `parllel` command: parses the command line, runs the command, reports errors.

Each group of commands is declared in a light module that imports nothing but argparse. The contract between
`main` and these modules consists of names only:

    def add_commands(commands):
        group = commands.add_parser("operators", help="...")         # a group nests further commands
        nested = group.add_subparsers(required=True, metavar="COMMAND")
        run = nested.add_parser("run", help="...")
        run.add_argument("spec")
        run.set_defaults(call="parllel.distributed.operators.workers.serving:run", extra="operators")

`set_defaults` describes a command to `main`:

    call   "module:function". The module is imported when the command runs; the function receives the parsed
           arguments and returns the exit status.
    extra  optional: the extra of setup.cfg that installs the libraries of that module.
    rest   optional: name of the multi-valued positional argument that also receives values after a flag.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from parllel.errors import ParllelError, install_command, notes_of
from parllel.system.start_program import forget_interrupt, start_program
from parllel.version import __version__

# `parllel --help` imports every one of them and its package, so none may be slow to import.
DECLARATIONS = (
    "parllel.cli.run_commands",
    "parllel.cli.remote_commands",
    "parllel.cli.operators_commands",
    "parllel.cli.messaging_commands",
)
INTERRUPTED = 130  # 128 + SIGINT, as in a shell
_DESCRIPTION = "Inspect, continue and plot training runs; play episodes between agents."
USER_ERROR = 2  # argparse's own exit status


class _Declaration(Protocol):
    """Module that declares commands."""

    def add_commands(self, commands: Any) -> None:
        """Add parsers to the result of `ArgumentParser.add_subparsers`."""


class _CommandParser(argparse.ArgumentParser):
    """Parser with --traceback, inherited by the parsers of all its subcommands.

    The flag may precede or follow the command. Without it no value is set, as a default of the inner parser
    would overwrite the outer one's.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_argument(
            "--traceback",
            action="store_true",
            default=argparse.SUPPRESS,
            help="show the full traceback of an error",
        )


def main(argv: Sequence[str] | None = None, declarations: Sequence[str] = DECLARATIONS) -> int:
    """Run a command line and return the exit status.

    User errors are reported in one sentence on standard error, with exit status 2. If the user's own code
    raised the error, the sentence names the line. Errors during training keep their traceback.

    Args:
        argv: defaults to the arguments of the process.
        declarations: modules that declare commands; see the top of this module.

    Raises:
        SystemExit: with status 2 for an invalid command line, 0 after `--help`.
    """
    if argv is None:
        start_program()
    arguments = _parse(argv, declarations)
    try:
        status = _load_command(arguments.call, getattr(arguments, "extra", None))(arguments)
        if sys.stdout is not None:  # None if the process was started with it closed
            sys.stdout.flush()
        forget_interrupt()  # a command may end by one, without an error
        return status
    except KeyboardInterrupt as interrupt:
        for note in notes_of(interrupt)[
            -1:
        ]:  # earlier notes describe the code that was interrupted
            print(f"parllel: {note}", file=sys.stderr)
        forget_interrupt()
        return INTERRUPTED
    except (OSError, ValueError, TypeError, ImportError, ParllelError) as error:
        from parllel.runners.user_errors import one_sentence, within_training

        if hasattr(arguments, "traceback") or within_training(error):
            raise
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe: `parllel runs | head`
            discard_output()
            return 0
        print(f"parllel: {one_sentence(error, '--traceback shows more')}", file=sys.stderr)
        if isinstance(error, OSError):  # perhaps of standard output
            discard_output()
        return USER_ERROR


def discard_output() -> None:
    """Drop what could not be written to standard output.

    The interpreter would try again at its end, and exit with a status of its own.
    """
    if sys.stdout is not None:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            return
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(argv: Sequence[str] | None, declarations: Sequence[str]) -> argparse.Namespace:
    parser = _CommandParser(prog="parllel", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"parllel {__version__}")
    _add_declared(parser, declarations)
    arguments, rest = parser.parse_known_args(argv)
    # argparse adds no values to a positional list after a flag: `resume RUN --trust n_steps=100`.
    values = getattr(arguments, getattr(arguments, "rest", ""), None)
    if rest and (values is None or any(value.startswith("-") for value in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if values is not None:
        setattr(arguments, arguments.rest, [*values, *rest])
    return arguments


def _add_declared(parser: argparse.ArgumentParser, modules: Sequence[str]) -> None:
    """Add the commands of the modules to a parser, in order."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in modules:
        declaration: _Declaration = importlib.import_module(name)
        declaration.add_commands(commands)


def _load_command(call: str, extra: str | None) -> Callable[[argparse.Namespace], int]:
    """Import the function of a command.

    Raises:
        ImportError: if a library is missing; names the extra that installs it.
    """
    module, _, function = call.partition(":")
    try:
        found: Callable[[argparse.Namespace], int] = getattr(
            importlib.import_module(module), function
        )
    except ModuleNotFoundError as error:
        # A missing module of parllel itself is a bug, which no extra fixes.
        if extra is None or str(error.name).partition(".")[0] == __name__.partition(".")[0]:
            raise
        raise ImportError(
            f"this command needs {error.name}: {install_command(extra)}", name=error.name
        ) from error
    return found
