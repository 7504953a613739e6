"""`parllel resume RUN [KEY=VALUE ...]`, `parllel repeat RUN [KEY=VALUE ...] [--runs DIR] [--name NAME]`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

from rich.console import Console

from parllel.cli.command import discard_output
from parllel.runners.runs import repeat, resume
from parllel.runs.run_folder import RunFolder
from parllel.runs.run_result import RunResult
from parllel.runs.trust import check_source


def resume_run(arguments: argparse.Namespace) -> int:
    """Continue a run. Returns the exit status: 130 or 143 if a signal stopped it."""
    changes = _checked_changes(arguments)
    console = Console()
    return report(console, *resume(arguments.run, changes=changes, console=console))


def repeat_run(arguments: argparse.Namespace) -> int:
    """Repeat a run. Returns the exit status, like `resume_run`."""
    changes = _checked_changes(arguments)
    console = Console()
    base, name = arguments.runs, arguments.name
    done = repeat(arguments.run, changes=changes, base=base, name=name, console=console)
    return report(console, *done)


def _checked_changes(arguments: argparse.Namespace) -> dict[str, str] | None:
    changes = changes_of(arguments.changes)
    # Before any code of the run is imported.
    check_source(arguments.run, trusted=arguments.trust)
    return changes


def changes_of(pairs: Sequence[str]) -> dict[str, str] | None:
    """Parse `key=value` pairs to a dict of strings, or None if there are none.

    Raises:
        ValueError: for an argument that is not such a pair, or a repeated key.
    """
    changes: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise ValueError(f"expected KEY=VALUE, got {pair!r}")
        if key in changes:
            raise ValueError(f"{key}: expected one value, got {changes[key]!r} and {value!r}")
        changes[key] = value
    return changes or None


def report(console: Console, result: RunResult, folder: RunFolder) -> int:
    """Print the result of a run and its folder. Returns the exit status."""
    how = "Solved" if result.solved else "Finished"
    if result.stopped_by is not None:
        how = f"Stopped by {result.stopped_by}"
    text = f"{how} after {result.elapsed_steps:,} environment steps"
    if result.stopped_by is not None:
        text += f"; continue with: parllel resume {folder.path}"
    else:
        if math.isfinite(result.evaluation_return):  # NaN without an evaluation
            text += f", last mean return {result.evaluation_return:.1f}"
        text += f". Everything about this run is in {folder.path}"
    # The run has succeeded even if its output cannot be written; rich exits when the pipe is closed.
    try:
        # Printed verbatim: rich interprets brackets in a path as markup, and a wrapped path cannot be copied.
        console.print(text, soft_wrap=True, markup=False, highlight=False)
    except (OSError, SystemExit):
        discard_output()
    return result.exit_status
