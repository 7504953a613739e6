"""The experiments in a folder, and the results of each, as JSON values."""

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
    """Return what a list of the experiments below a folder says of each, the newest first.

    run: where it is below the folder, as `experiment_results` takes it.  name, folder.  time: when it
    began, seconds since 1970.  state: as `parllel runs` calls it.  operators: ids, those of players too.
    n_done, n_episodes: of all operators; the second is None where people begin episodes as they like.
    A folder that does not exist has none; an experiment whose record is damaged is left out.
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
    return sorted(found, key=lambda one: (one["time"], one["run"]), reverse=True)


def experiment_results(base: str | os.PathLike[str], run: str) -> dict[str, Any]:
    """Return the results of an experiment, computed from its telemetry, also while it runs.

    run: where it is below the folder.

    Raises:
        KeyError: if there is no experiment of that name below the folder.
        ValueError: if its record or its telemetry is damaged.
    """
    base = Path(base)
    # Looked up rather than joined: a name comes from a page, and must not lead elsewhere.
    found = {path.relative_to(base).as_posix(): path for path in _runs_below(base)}
    if run not in found:
        raise KeyError(f"{base}: expected the name of an experiment below, got {run!r}")
    path = found[run]
    record = open_experiment(path)
    return {
        "run": run,
        "name": str(record.config.get("name")),
        "state": run_state(RunFolder.open(path), record),
        "groups": results_as_json(read_results(path, record.config)),
    }


def _runs_below(base: Path) -> list[Path]:
    return find_runs(base) if base.is_dir() else []


def _described(base: Path, record: RunRecord) -> dict[str, Any]:
    path, values = record.path, record.config
    sources = sources_of(path, values)
    telemetry = path / "telemetry"
    # A game has a record for each of its players.
    asked = [None if one.episodes is None else one.episodes * len(one.operators) for one in sources]
    return {
        "run": path.relative_to(base).as_posix(),
        "name": str(values.get("name")),
        "folder": str(path),
        "time": datetime.fromisoformat(str(record.created)).timestamp(),
        "state": run_state(RunFolder.open(path), record),
        # A person may have a seat in several games of a board.
        "operators": list(dict.fromkeys(name for source in sources for name in source.operators)),
        "n_done": sum(_lines(telemetry_path(telemetry, one.run_id, EPISODES)) for one in sources),
        "n_episodes": None if None in asked else sum(n for n in asked if n is not None),
    }


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:  # not begun
        return 0
