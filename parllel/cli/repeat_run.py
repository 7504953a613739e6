"""`parllel repeat RUN [KEY=VALUE ...] [--runs DIR] [--name NAME]`."""

from __future__ import annotations

import argparse

from rich.console import Console

from parllel.cli.rerun import changes_of, report
from parllel.runners.runs import repeat
from parllel.runs.trust import check_source


def run(arguments: argparse.Namespace) -> int:
    """Repeat a run and return the exit status: 130 or 143 if a signal stopped it."""
    changes = changes_of(arguments.changes)
    # Before anything of the run is imported.
    check_source(arguments.run, trusted=arguments.trust)
    console = Console()
    result, folder = repeat(
        arguments.run, changes=changes, base=arguments.runs, name=arguments.name, console=console
    )
    return report(console, result, folder)
