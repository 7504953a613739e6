"""List of the experiments below a folder, and the results of each, as JSON values."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

from parllel.distributed.operators.experiments.experiment_folder import (
    KIND,
    open_experiment,
    read_results,
    sources_of,
)
from parllel.distributed.operators.experiments.results import results_as_json
from parllel.distributed.operators.experiments.telemetry import EPISODES, telemetry_path
from parllel.runs.run_folder import RunFolder, find_runs, run_state
from parllel.runs.run_record import RunRecord


def list_experiments(base: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return a summary of each experiment below a folder, newest first.

    A missing folder yields an empty list. Experiments with a damaged record are left out. Each
    summary is a dict with these keys:

    run: path below the folder, as for `experiment_results`.
    name, folder: name and folder of the experiment.
    time: start time in seconds since 1970.
    state: state of the run, as in `parllel runs`.
    operators: ids of the operators, including the players of games.
    n_done, n_episodes: numbers of episodes finished and to play, over all operators. The second is
        None on a board, where people start episodes as they like.
    """
    base = Path(base)
    found = []
    for path in _runs_below(base):
        try:
            record = RunFolder.open(path).read_record()
            if record.kind == KIND:
                found.append(_described(base, record))
        # One damaged folder must not hide the others.
        except (OSError, ValueError):
            continue
    return sorted(found, key=lambda summary: (summary["time"], summary["run"]), reverse=True)


def experiment_results(base: str | os.PathLike[str], run: str) -> dict[str, Any]:
    """Return the results of an experiment, computed from its telemetry, even while it runs.

    run: path below the folder.

    Raises:
        KeyError: if there is no such experiment below the folder.
        ValueError: if its record or telemetry is damaged.
    """
    path = find_experiment(base, run)
    record = open_experiment(path)
    return {
        "run": run,
        "name": str(record.config.get("name")),
        "state": run_state(RunFolder.open(path), record),
        "groups": results_as_json(read_results(path, record.config)),
    }


def find_experiment(base: str | os.PathLike[str], run: str) -> Path:
    """Return the folder of an experiment.

    run: path below the folder `base`.

    Raises:
        KeyError: if there is no such run below the folder.
    """
    base = Path(base)
    # Looked up, not joined: the name comes from a page and must not lead out of the folder.
    found = {path.relative_to(base).as_posix(): path for path in _runs_below(base)}
    if run not in found:
        raise KeyError(f"{base}: expected the path of an experiment below it, got {run!r}")
    return found[run]


def _runs_below(base: Path) -> list[Path]:
    return find_runs(base) if base.is_dir() else []


def _described(base: Path, record: RunRecord) -> dict[str, Any]:
    path, values = record.path, record.config
    sources = sources_of(path, values)
    telemetry = path / "telemetry"
    # A game has one record per player.
    asked = [None if s.episodes is None else s.episodes * len(s.operators) for s in sources]
    return {
        "run": path.relative_to(base).as_posix(),
        "name": str(values.get("name")),
        "folder": str(path),
        "time": datetime.fromisoformat(str(record.created)).timestamp(),
        "state": run_state(RunFolder.open(path), record),
        # A person may have a seat in several games of a board.
        "operators": list(dict.fromkeys(name for source in sources for name in source.operators)),
        "n_done": sum(_lines(telemetry_path(telemetry, s.run_id, EPISODES)) for s in sources),
        "n_episodes": None if None in asked else sum(n for n in asked if n is not None),
    }


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:  # not started yet
        return 0
