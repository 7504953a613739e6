"""`parllel sweep SCRIPT KEY=VALUES...`: check the settings, run all runs, report."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from parllel.cli.list_runs import WIDTH
from parllel.cli.sweeps.display import Display
from parllel.cli.sweeps.folder import ENDED, PRUNED, SweepFolder
from parllel.cli.sweeps.progress import Progress
from parllel.cli.sweeps.results import problems_of, table_of, write_results
from parllel.cli.sweeps.scheduler import ScheduledRun, Scheduler, Source
from parllel.cli.sweeps.script import Script, load_script
from parllel.cli.sweeps.settings import INTERVAL, all_settings, parse_pairs
from parllel.errors import install_command
from parllel.system.processes.cores import usable_cores

DEFAULT_TRIALS = 20
DEFAULT_SAMPLER, DEFAULT_PRUNER = "tpe", "none"
THREADS = "threads"  # field of a config that sets PyTorch's threads


def run(arguments: argparse.Namespace) -> int:
    """Run a sweep.

    Returns the exit status: 0 if all runs ended, 1 if some failed, 130 or 143 if a signal stopped the sweep.
    """
    pairs = parse_pairs(arguments.settings)
    per_run = _at_least_one("--cores-per-run", arguments.cores_per_run) or 1
    jobs = _at_least_one("--jobs", arguments.jobs) or max(1, usable_cores() // per_run)
    script = load_script(arguments.script)
    threads = {}
    if THREADS not in pairs and type(getattr(script.config, THREADS, None)) is int:
        threads[THREADS] = str(per_run)
    if arguments.optuna:
        return _run_trials(script, pairs, threads, arguments, jobs, per_run)
    for flag in ("trials", "sampler", "pruner"):
        if getattr(arguments, flag) is not None:
            raise ValueError(f"--{flag} is for --optuna only")
    for key, text in pairs.items():
        if INTERVAL.fullmatch(text):
            raise ValueError(f"{key}: the interval {text} is for --optuna only")
    settings = all_settings(script.config, pairs, threads)
    folder = SweepFolder(Path(arguments.into or default_folder(script.file)))
    with folder.held({"script": str(script.file), "kind": "grid", "keys": list(pairs)}):
        folder.check_runs(settings)
        runs = [
            ScheduledRun(one, Progress(folder.run(one.name), arguments.key)) for one in settings
        ]
        for one in runs:
            state = folder.state(one.name)
            # Any other run is continued or started, a failed one too.
            one.state = state if state in ENDED else "waiting"
            one.progress.refresh()
        grid = _Grid(runs)
        return run_source(script, folder, runs, len(runs), grid, jobs, per_run, arguments.key)


def _run_trials(
    script: Script,
    pairs: dict[str, str],
    threads: dict[str, str],
    arguments: argparse.Namespace,
    jobs: int,
    per_run: int,
) -> int:
    try:
        from parllel.cli.sweeps.trials import Trials, check_space, parse_space
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise ImportError(
            f"--optuna needs optuna: {install_command('sweeps')}", name="optuna"
        ) from None
    n_trials = _at_least_one("--trials", arguments.trials) or DEFAULT_TRIALS
    space, fixed = parse_space(pairs, script.config)
    fixed = {**threads, **fixed}
    check_space(space, fixed, script.config)
    folder = SweepFolder(Path(arguments.into or default_folder(script.file)))
    with folder.held({"script": str(script.file), "kind": "optuna", "values": pairs}):
        trials = Trials(
            folder,
            script.config,
            space,
            fixed,
            n_trials,
            arguments.key,
            arguments.sampler or DEFAULT_SAMPLER,
            arguments.pruner or DEFAULT_PRUNER,
        )
        return run_source(
            script, folder, trials.runs, n_trials, trials, jobs, per_run, arguments.key
        )


class _Grid:
    """Runs of a grid, in order."""

    def __init__(self, runs: Sequence[ScheduledRun]) -> None:
        self._left = iter([run for run in runs if run.state == "waiting"])

    def next_run(self) -> ScheduledRun | None:
        """Return the next run."""
        return next(self._left, None)

    def progressed(self, run: ScheduledRun) -> bool:
        """Never ends a run."""
        return False

    def ended(self, run: ScheduledRun) -> None:
        """Do nothing."""


def run_source(
    script: Script,
    folder: SweepFolder,
    runs: Sequence[ScheduledRun],
    n_runs: int,
    source: Source,
    jobs: int,
    threads: int,
    key: str,
) -> int:
    """Run the runs of a source, write and print the results, and return the exit status.

    runs: all runs; the source may append to it.
    """
    console = Console()
    if not console.is_terminal:  # rich assumes 80 columns
        console = Console(width=WIDTH)
    done = sum(run.state in (*ENDED, PRUNED) for run in runs)
    if done:
        _print(console, f"{done} of {n_runs} runs have ended before")
    display = Display(console, runs, n_runs, folder.path)
    scheduler = Scheduler(script, folder, jobs, threads, display.show)
    try:
        with display:
            scheduler.run(source, display.announce)
    finally:
        results, remarks = write_results(folder, runs, key)
    console.print(table_of(results))
    for line in [*problems_of(runs, folder), *remarks]:
        _print(console, line)
    if scheduler.stopped_by is not None:
        _print(console, "Stopped; the same command continues the sweep")
        return 128 + signal.Signals[scheduler.stopped_by].value
    _print(console, f"Everything about this sweep is in {folder.path}")
    return int(any(run.state in ("failed", "damaged") for run in runs))


def default_folder(script: Path) -> Path:
    """Return the default folder for the sweeps of a script."""
    return Path("runs", "sweeps", f"{script.parent.name}-{script.stem}")


def _at_least_one(flag: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise ValueError(f"{flag}: expected 1 or more, got {value}")
    return value


def _print(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, markup=False, highlight=False)
