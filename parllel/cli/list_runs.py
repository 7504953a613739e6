"""`parllel runs [FOLDER]`: list runs and their states."""

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

WIDTH = 250  # characters, of a table that is written to a file or a pipe


@dataclass(frozen=True)
class RunLine:
    """What the list says about a run.

    Attributes:
        path: the run's folder.
        created: local time, ISO 8601; None if the run's record cannot be read.
        kind: "training", or another; None if the record cannot be read.
        build: the function that built the run: "module:function", or "cartpole/train_ppo.py:build" if it is
            in a script; for a run of another kind its script, None if it names none.
        seed: from its config, if there is one.
        steps: environment steps at its last checkpoint or logged row.
        evaluation_return: mean return of the last evaluation; None without one.
        state: as `run_state` returns it, or "damaged".
        megabytes: size of all its files.
        problem: why it is damaged.
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
    """Print a table, or JSON lines, with the runs in order of age; return the exit status."""
    folder = Path(arguments.folder)
    if arguments.folder == DEFAULT_FOLDER and not folder.exists():
        raise FileNotFoundError(
            f"there is no folder {folder} in {Path.cwd()}: start this where your runs were begun, or name "
            "the folder that they are in: parllel runs FOLDER"
        )
    found = [line_of(path) for path in find_runs(folder)]
    found.sort(key=lambda line: (line.created or "", line.path))
    if arguments.json:
        for line in found:
            print(json.dumps(asdict(line)))
        return 0
    if not found:
        print(f"there are no runs in {folder}: neither it nor a folder below it has a run.json")
        return 0
    # rich takes 80 columns for a pipe, and would wrap what `grep` reads.
    seen = sys.stdout is not None and sys.stdout.isatty()
    console = Console(width=None if seen else WIDTH)
    with console.capture() as table:  # rich would exit with status 1 when `head` closes the pipe
        _print(console, found)
    print(table.get(), end="")
    for line in found:
        if line.problem is not None:
            print(f"damaged: {line.problem}", file=sys.stderr)
    return 0


def line_of(path: Path) -> RunLine:
    """Return what the list says about the run in a folder; never raises for what is in it."""
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
    """Return "module:function"; for a script, whose module is `__main__`, its folder and file instead."""
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
    """Return the steps done and the mean return of the last evaluation; None for what no file says."""
    steps = [int(found.stem.split("-")[-1]) for found in folder.checkpoints.paths()]
    steps += [int(step) for step in _logged(folder, "step")]
    returns = _logged(folder, "evaluation/return/mean")
    # Whichever is further: rows are logged, and checkpoints written, at intervals of their own.
    return max(steps, default=None), returns[-1] if returns else None


def _logged(folder: RunFolder, key: str) -> list[float]:
    """Return the numbers under a key of progress.csv; none if it cannot be read."""
    try:
        return [point[1] for point in read_curve(folder.path / "progress.csv", key)]
    except (OSError, ValueError, IndexError, csv.Error):  # nothing yet, another logger, damage
        return []


def _megabytes(path: Path) -> float:
    total = 0
    for file in path.rglob("*"):
        try:
            total += file.lstat().st_size if file.is_file() else 0
        except OSError:  # a run in progress has just removed an old checkpoint
            continue
    return round(total / 1e6, 3)


def _print(console: Console, lines: list[RunLine]) -> None:
    """Print a table, or a few lines for each run if the table is too wide for the terminal."""
    # Without this limit rich measures a table as no wider than the console, whatever is in it.
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
            said = "  " + ", ".join(fact for fact in facts if fact)
            console.print(said, soft_wrap=True, markup=False, highlight=False)


def _facts(line: RunLine) -> list[list[str]]:
    """Return the facts of each line below a run's name."""
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
    """Return the runs as a table; `build` adds the column of build functions."""
    # The column is left out where it would say the same of all runs, as most terminals are narrow.
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
            # rich takes brackets for markup: a folder `runs[old]` would lose a part of its name.
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
