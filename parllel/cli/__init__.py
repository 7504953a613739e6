"""The `parllel` command line."""

from parllel.cli.command import main

__all__ = [
    "main",
]
