"""`parllel resume RUN [KEY=VALUE ...]`."""

from __future__ import annotations

import argparse

from rich.console import Console

from parllel.cli.rerun import changes_of, report
from parllel.runners.runs import resume
from parllel.runs.trust import check_source


def run(arguments: argparse.Namespace) -> int:
    """Continue a run and return the exit status: 130 or 143 if a signal stopped it."""
    changes = changes_of(arguments.changes)
    # Before anything of the run is imported.
    check_source(arguments.run, trusted=arguments.trust)
    console = Console()
    result, folder = resume(arguments.run, changes=changes, console=console)
    return report(console, result, folder)
