"""The `parllel` command: look at runs, and go on with them."""

from parllel.cli.command import main

__all__ = ["main"]
