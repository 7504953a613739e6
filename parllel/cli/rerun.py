"""`parllel resume RUN [KEY=VALUE ...]`, `parllel repeat RUN [KEY=VALUE ...] [--runs DIR] [--name NAME]`."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Sequence

from rich.console import Console

from parllel.runners.runs import repeat, resume
from parllel.runs.run_folder import RunFolder
from parllel.runs.run_result import RunResult
from parllel.runs.trust import check_source


def resume_run(arguments: argparse.Namespace) -> int:
    """Continue a run and return the exit status: 130 or 143 if a signal stopped it."""
    changes = _checked_changes(arguments)
    console = Console()
    return report(console, *resume(arguments.run, changes=changes, console=console))


def repeat_run(arguments: argparse.Namespace) -> int:
    """Repeat a run and return the exit status, as `resume_run` does."""
    changes = _checked_changes(arguments)
    console = Console()
    base, name = arguments.runs, arguments.name
    done = repeat(arguments.run, changes=changes, base=base, name=name, console=console)
    return report(console, *done)


def _checked_changes(arguments: argparse.Namespace) -> dict[str, str] | None:
    changes = changes_of(arguments.changes)
    # Before anything of the run is imported.
    check_source(arguments.run, trusted=arguments.trust)
    return changes


def changes_of(pairs: Sequence[str]) -> dict[str, str] | None:
    """Return `key=value` pairs as a dict, None if there are none; values stay strings.

    Raises:
        ValueError: for an argument that is no such pair, or a key given twice.
    """
    changes: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise ValueError(f"expected KEY=VALUE, got {pair!r}")
        if key in changes:
            raise ValueError(f"{key}: expected once, got {changes[key]!r} and {value!r}")
        changes[key] = value
    return changes or None


def report(console: Console, result: RunResult, folder: RunFolder) -> int:
    """Print the result of a run and where its folder is; return the exit status."""
    how = "Solved" if result.solved else "Finished"
    if result.stopped_by is not None:
        how = f"Stopped by {result.stopped_by}"
    said = f"{how} after {result.elapsed_steps:,} environment steps"
    if result.stopped_by is not None:
        said += f"; continue with: parllel resume {folder.path}"
    else:
        if math.isfinite(result.evaluation_return):  # there was an evaluation
            said += f", last mean return {result.evaluation_return:.1f}"
        said += f". Everything about this run is in {folder.path}"
    # The run has succeeded even if its output cannot be written; rich exits when the pipe is closed.
    with contextlib.suppress(OSError, SystemExit):
        # As it is: rich takes brackets in a path for markup, and a path that is wrapped cannot be copied.
        console.print(said, soft_wrap=True, markup=False, highlight=False)
    return result.exit_status
