"""Trainings in processes of their own, and the report that each is written to as soon as it has ended."""

from __future__ import annotations

import json
import signal
import statistics
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.end_to_end.sides import Side
from benchmarks.end_to_end.training import THREAD_VARIABLES
from benchmarks.gallery.comparison import comparison
from benchmarks.gallery.entries import ENTRIES, SIDES, Entry
from benchmarks.gallery.job import Job
from benchmarks.harness.child import Child, ChildError
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.results import Report, read, write
from benchmarks.peers import venvs
from parllel.runs import config_values

NOT_SETTINGS = (
    "seed",
    "device",
    "n_eval_episodes",
)  # fields of a config that may differ between trainings
ERROR_CHARACTERS = 300


class Task(NamedTuple):
    """One training of one side."""

    entry: Entry
    side: Side
    seed: int


class TrainingFailedError(Exception):
    """A training ended without a result; the message has the last line that it wrote."""


# ---------------------------------------------------------------------- the report


def begin(path: Path, entries: Iterable[Entry]) -> Report:
    """Return what a file has, completed by entries that it lacks.

    Raises:
        ValueError: if the file has an entry with other settings.
    """
    machine = {**describe_machine(), "load_average_1min": None}
    report: Report = {"machine": machine, "settings": {"quick": False}, "entries": {}}
    if path.exists():
        report = read(path)
    found = report["entries"]
    for entry in entries:
        wanted = settings_of(entry)
        settings = found.setdefault(entry.name, _new_entry(wanted))["settings"]
        if settings != wanted:
            differing = [name for name in wanted if settings.get(name) != wanted[name]]
            raise ValueError(
                f"{path}: {entry.name} was trained with other settings ({', '.join(differing)} "
                "differ); remove the entry, or name another file"
            )
    order = [entry.name for entry in ENTRIES]
    names = sorted(found, key=lambda name: order.index(name) if name in order else len(order))
    return {**report, "entries": {name: found[name] for name in names}}


def settings_of(entry: Entry) -> dict[str, Any]:
    """Return the settings that both sides share, as JSON values."""
    values = config_values(entry.config)
    shared = {name: value for name, value in values.items() if name not in NOT_SETTINGS}
    settings: dict[str, Any] = json.loads(json.dumps(shared))
    return {**settings, "n_eval_episodes": entry.n_eval_episodes}


def _new_entry(settings: dict[str, Any]) -> dict[str, Any]:
    sides = {
        side.name: {"title": side.title, "libraries": {}, "trainings": [], "failed": []}
        for side in SIDES
    }
    return {"settings": settings, "sides": sides}


def missing(report: Report, entries: Iterable[Entry], n_seeds: int | None) -> Iterator[Task]:
    """Yield the trainings that a report lacks, those that failed included, seed by seed.

    n_seeds: of each side and entry; None: each entry's own.
    """
    for entry in entries:
        sides = report["entries"][entry.name]["sides"]
        for seed in range(n_seeds or entry.n_seeds):
            for side in SIDES:
                done = [training["seed"] for training in sides[side.name]["trainings"]]
                if seed not in done:
                    yield Task(entry, side, seed)


# ---------------------------------------------------------------------- trainings


class Trainer:
    """Trains tasks side by side, and writes what became of each into a file.

    Args:
        path: of the report.
        report: what it holds.
        timeout_s: the longest that a training may take.
        command_of: returns the command of a task's process, which writes the lines of a `Reporter`.
    """

    def __init__(
        self,
        path: Path,
        report: Report,
        timeout_s: float,
        command_of: Callable[[Task], Sequence[str]],
    ) -> None:
        self.path, self.report, self.timeout_s = path, report, timeout_s
        self.command_of = command_of
        self._lock = threading.Lock()
        self._children: set[Child] = set()
        self._stopped = False

    def run(self, tasks: Sequence[Task], jobs: int) -> None:
        """Train all tasks, `jobs` of them at a time. What interrupts it ends the trainings at work."""
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(self._train, task) for task in tasks]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self._stop()
                pool.shutdown(cancel_futures=True)
                raise

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            for child in self._children:
                child.signal(signal.SIGKILL)

    def _train(self, task: Task) -> None:
        try:
            ended = self._outcome(task)
        except TrainingFailedError as error:
            ended = {"seed": task.seed, "error": str(error)[-ERROR_CHARACTERS:]}
        with self._lock:
            if not self._stopped:
                put(self.report, task, ended)
                write(self.path, self.report)
                said = ended.get("error") or f"{ended['mean']:,.1f}"
                print(f"{task.entry.name}, seed {task.seed}, {task.side.title}: {said}", flush=True)

    def _outcome(self, task: Task) -> dict[str, Any]:
        command = self.command_of(task)
        with self._lock:
            if self._stopped:
                raise TrainingFailedError("stopped")
            child = Child(command, dict.fromkeys(THREAD_VARIABLES, "1"))
            self._children.add(child)
        try:
            return _summary(task.seed, self._messages(child))
        except (ChildError, ValueError, KeyError) as error:
            raise TrainingFailedError(f"{error!r}. {child.last_errors(1)}") from error
        finally:
            with self._lock:
                self._children.discard(child)
                child.close()

    def _messages(self, child: Child) -> dict[str, Any]:
        """Return all that a training reports, in one dict."""
        found: dict[str, Any] = {}
        for line in child.lines(self.timeout_s):
            found |= json.loads(line)
            if found["event"] == "end":
                return found
        raise TrainingFailedError(child.last_errors(1) or "ended without a result")


def command_of(task: Task) -> list[str]:
    """Return the command of a task's process.

    Raises:
        TrainingFailedError: if the virtual environment of the side cannot be made.
    """
    entry, side = task.entry, task.side
    python = sys.executable
    if side.venv is not None:
        try:
            venvs.create(side.venv)
        except (RuntimeError, OSError) as error:
            raise TrainingFailedError(f"no virtual environment: {error}") from error
        python = str(venvs.python_of(side.venv))
    job = Job(entry.name, replace(entry.config, seed=task.seed), entry.n_eval_episodes)
    return [python, "-m", f"{__package__}.{side.module}", job.to_json()]


def _summary(seed: int, message: dict[str, Any]) -> dict[str, Any]:
    """Return what the report has of a training, with `libraries`."""
    returns, cpu_s = message["returns"], message["cpu_s"]
    return {
        "seed": seed,
        "mean": round(statistics.fmean(returns), 3),
        "std": round(statistics.pstdev(returns), 3),
        "steps": message["steps"],
        "cpu_s": round(cpu_s, 2),
        "steps_per_cpu_second": round(message["steps"] / cpu_s, 1),
        "curve": [[steps, round(mean, 3)] for steps, mean in message["curve"]],
        "libraries": message["libraries"],
    }


def put(report: Report, task: Task, ended: dict[str, Any]) -> None:
    """Add what became of a training to its side, in place of an earlier failure, and compare the sides."""
    found = report["entries"][task.entry.name]
    side = found["sides"][task.side.name]
    side["failed"] = [one for one in side["failed"] if one["seed"] != task.seed]
    if "error" in ended:
        side["failed"] = _by_seed([*side["failed"], ended])
        return
    side["libraries"] = ended.pop("libraries")
    side["trainings"] = _by_seed([*side["trainings"], ended])
    ours, theirs = (found["sides"][one.name]["trainings"] for one in SIDES)
    found["comparison"] = comparison(ours, theirs, found["settings"]["log_interval_steps"])


def _by_seed(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda one: one["seed"])
