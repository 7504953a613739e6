"""How a package declares commands of `parllel`.

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
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from parllel.errors import install_command

# `parllel --help` imports all of them, and with each the package that it is in: none may be slow to import.
DECLARATIONS = (
    "parllel.cli.run_commands",
    "parllel.cli.remote_commands",
    "parllel.cli.operators_commands",
    "parllel.cli.messaging_commands",
)


class Declaration(Protocol):
    """A module that declares commands."""

    def add_commands(self, commands: Any) -> None:
        """Add parsers to what `ArgumentParser.add_subparsers` returned."""


class CommandParser(argparse.ArgumentParser):
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


def add_declared(parser: argparse.ArgumentParser, modules: Sequence[str]) -> None:
    """Add the commands of modules to a parser, in their order."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in modules:
        declaration: Declaration = importlib.import_module(name)
        declaration.add_commands(commands)


def load_command(call: str, extra: str | None) -> Callable[[argparse.Namespace], int]:
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
