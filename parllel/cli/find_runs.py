"""The run folders below a folder."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from parllel.runs import RunFolder, RunRecord


def find_runs(folder: Path) -> list[Path]:
    """Return the folders with a `run.json`, `folder` itself or any below it, by name.

    Nothing is looked for within a run, and links are not followed.

    Raises:
        FileNotFoundError: if there is no such folder.
        NotADirectoryError: if a file is there.
    """
    if folder.is_file():
        raise NotADirectoryError(f"{folder}: expected a folder, got a file")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    found = []
    for path, folders, files in os.walk(folder):
        if "run.json" in files:
            found.append(Path(path))
            folders.clear()
        folders.sort()
    return found


def json_of(path: Path) -> Any:
    """Return what a JSON file holds, or None where it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def state_of(folder: RunFolder, record: RunRecord) -> str:
    """Return how a run stands.

    "running"; "finished": all steps are done; "solved"; "ended" by a callback; "stopped" by a signal;
    "failed": by an exception, or killed.
    """
    if folder.in_use:
        return "running"
    outcome = record.outcome
    if outcome is None:
        return "failed"
    if outcome["stopped_by"]:
        return "stopped" if outcome["stopped_by"] in signal.Signals.__members__ else "ended"
    return "solved" if outcome["solved"] else "finished"
