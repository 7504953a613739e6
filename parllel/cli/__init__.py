"""The `parllel` command: runs, and episodes between agents."""

from parllel.cli.command import main

__all__ = [
    "main",
]
