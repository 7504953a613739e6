"""The `parllel` command: inspect runs, continue them and plot them."""

from parllel.cli.command import main

__all__ = ["main"]
