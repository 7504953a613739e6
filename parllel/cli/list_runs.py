"""`parllel runs [FOLDER]`: list of runs and their states."""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parllel.cli.run_commands import DEFAULT_FOLDER
from parllel.pictures.learning_curve import read_curve
from parllel.runs.run_folder import RunFolder, find_runs, run_state
from parllel.runs.run_record import TRAINING, RunRecord

WIDTH = 250  # characters of a table written to a file or a pipe


@dataclass(frozen=True)
class RunLine:
    """One entry of the list of runs.

    Attributes:
        path: the run's folder.
        created: local time, ISO 8601; None if the run's record cannot be read.
        kind: "training" or another kind; None if the record cannot be read.
        build: the function that built the run: "module:function", or "cartpole/train_ppo.py:build" for a
            script. For a run of another kind, its script; None if it records none.
        seed: from the config, if it has one.
        steps: environment steps at the last checkpoint or logged row, whichever is later.
        evaluation_return: mean return of the last evaluation; None without one.
        state: from `run_state`, or "damaged".
        megabytes: total size of the run's files.
        problem: why the run counts as damaged.
    """

    path: str
    created: str | None
    kind: str | None
    build: str | None
    seed: Any
    steps: int | None
    evaluation_return: float | None
    state: str
    megabytes: float
    problem: str | None = None


def run(arguments: argparse.Namespace) -> int:
    """Print the runs, oldest first, as a table or as JSON lines. Returns the exit status."""
    folder = Path(arguments.folder)
    if arguments.folder == DEFAULT_FOLDER and not folder.exists():
        raise FileNotFoundError(
            f"there is no folder {folder} in {Path.cwd()}. Run this where you started training, or pass "
            "the folder of your runs: parllel runs FOLDER"
        )
    found = [line_of(path) for path in find_runs(folder)]
    found.sort(key=lambda line: (line.created or "", line.path))
    if arguments.json:
        for line in found:
            print(json.dumps(asdict(line)))
        return 0
    if not found:
        print(f"there are no runs in {folder}: found no run.json in it or below it")
        return 0
    # rich assumes 80 columns for a pipe, which would wrap lines that `grep` reads.
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(width=None if is_terminal else WIDTH)
    with console.capture() as table:  # rich would exit with status 1 when `head` closes the pipe
        _print(console, found)
    print(table.get(), end="")
    for line in found:
        if line.problem is not None:
            print(f"damaged: {line.problem}", file=sys.stderr)
    return 0


def line_of(path: Path) -> RunLine:
    """Return the entry of the run in a folder. Never raises for the folder's content."""
    size = _megabytes(path)
    try:
        return _line_of(RunFolder.open(path), size)
    except Exception as error:  # one damaged run must not hide the others
        known = isinstance(error, (OSError, ValueError))
        problem = str(error) if known else f"{path}: {type(error).__name__}: {error}"
        return RunLine(str(path), None, None, None, None, None, None, "damaged", size, problem)


def _line_of(folder: RunFolder, size: float) -> RunLine:
    record = folder.read_record()
    steps, evaluation_return = _progress(folder)
    if record.kind != TRAINING and isinstance((record.outcome or {}).get("steps"), int):
        steps = (record.outcome or {})["steps"]
    return RunLine(
        path=str(folder.path),
        created=str(record.created),
        kind=record.kind,
        build=_build_name(record),
        seed=record.config.get("seed"),
        steps=steps,
        evaluation_return=evaluation_return,
        state=run_state(folder, record),
        megabytes=size,
    )


def _build_name(record: RunRecord) -> str | None:
    """Return "module:function", with folder and file of a script in place of `__main__`."""
    build = record.build_function
    if build is None:
        script = record.config.get("script")
        return "/".join(Path(script).parts[-2:]) if isinstance(script, str) else None
    module, _, function = build.name.partition(":")
    file = build.file
    if module != "__main__" or file is None:
        return build.name
    return f"{'/'.join(Path(file).parts[-2:])}:{function}"


def _progress(folder: RunFolder) -> tuple[int | None, float | None]:
    """Return the steps done and the mean return of the last evaluation; None where not recorded."""
    steps = [int(found.stem.split("-")[-1]) for found in folder.checkpoints.paths()]
    steps += [int(step) for step in _logged(folder, "step")]
    returns = _logged(folder, "evaluation/return/mean")
    # The later of both, since rows are logged and checkpoints written at different intervals.
    return max(steps, default=None), returns[-1] if returns else None


def _logged(folder: RunFolder, key: str) -> list[float]:
    """Return the numbers under a key of progress.csv; empty if it cannot be read."""
    try:
        return [point[1] for point in read_curve(folder.path / "progress.csv", key)]
    except (OSError, ValueError, IndexError, csv.Error):  # nothing yet, another logger, damage
        return []


def _megabytes(path: Path) -> float:
    total = 0
    for file in path.rglob("*"):
        try:
            total += file.lstat().st_size if file.is_file() else 0
        except OSError:  # for example an old checkpoint that a running run has just removed
            continue
    return round(total / 1e6, 3)


def _print(console: Console, lines: list[RunLine]) -> None:
    """Print a table, or a few lines per run if the table is too wide for the terminal."""
    # By default rich caps a table's measured width at the console's.
    endless = console.options.update(max_width=10_000)
    for build in (True, False):
        table = _table(lines, build)
        if (
            console.width >= WIDTH
            or console.measure(table, options=endless).maximum <= console.width
        ):
            console.print(table)
            return
    for line in lines:
        console.print(line.path, style="bold", soft_wrap=True, markup=False, highlight=False)
        for facts in _facts(line):
            text = "  " + ", ".join(fact for fact in facts if fact)
            console.print(text, soft_wrap=True, markup=False, highlight=False)


def _facts(line: RunLine) -> list[list[str]]:
    """Return the details of a run, one list per line."""
    number = _number(line.evaluation_return)
    return [
        [
            (line.kind or "") if _is_special(line) else "",
            line.state,
            "" if line.steps is None else f"{line.steps:,} steps",
            f"return {number}" if number else "",
            "" if line.seed is None else f"seed {line.seed}",
        ],
        [_when(line), f"{line.megabytes:.1f} MB"],
        *([[line.build]] if line.build else []),
    ]


def _when(line: RunLine) -> str:
    return (line.created or "")[:16].replace("T", " ")


def _table(lines: list[RunLine], build: bool) -> Table:
    """Build the table of runs; `build` adds the column of build functions."""
    # Most terminals are narrow: the column of kinds is omitted where all runs are training runs.
    kinds = any(_is_special(line) for line in lines)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold")
    table.add_column("when", no_wrap=True)
    if kinds:
        table.add_column("kind", no_wrap=True)
    if build:
        table.add_column("build", overflow="fold")
    for name in ("seed", "steps", "return"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    for line in lines:
        table.add_row(
            # rich interprets brackets as markup: a folder `runs[old]` would lose part of its name.
            escape(line.path),
            escape(_when(line)),
            *([line.kind or ""] if kinds else []),
            *([escape(line.build or "")] if build else []),
            "" if line.seed is None else escape(str(line.seed)),
            "" if line.steps is None else f"{line.steps:,}",
            _number(line.evaluation_return),
            line.state,
            f"{line.megabytes:.1f} MB",
        )
    return table


def _is_special(line: RunLine) -> bool:
    return line.kind not in (None, TRAINING)


def _number(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:.1f}"
