"""Find the folders of runs, and say how each run ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from parllel.runs.run_folder import RunFolder
from parllel.runs.run_record import TRAINING, RunRecord


def find_runs(folder: Path) -> list[Path]:
    """Return every folder with a `run.json`, sorted: `folder` itself, or those below it.

    A run's own folder is not searched, and links are not followed.

    Raises:
        FileNotFoundError: if the folder does not exist.
        NotADirectoryError: if it is a file.
    """
    if folder.is_file():
        raise NotADirectoryError(f"{folder}: expected a folder, got a file")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    found = []
    for path, folders, files in os.walk(folder):
        if "run.json" in files:
            found.append(Path(path))
            folders.clear()  # videos and checkpoints: no runs, and often many files
        folders.sort()
    return found


def run_state(folder: RunFolder, record: RunRecord) -> str:
    """Return the state of a run.

    "running"; "finished": all steps were done; "solved": it reached its target; "ended": by a callback;
    "stopped": by a signal; "failed": by an exception, or killed. A run of another kind is never "solved".
    """
    if folder.in_use:  # first: a resumed run still has the outcome of its last part
        return "running"
    # There is none if an error, or a kill, ended the process before it was written.
    outcome = record.outcome
    if outcome is None:
        return "failed"
    if record.kind != TRAINING:
        outcome = {"stopped_by": None, "solved": False, **outcome}
    if outcome["stopped_by"]:
        return "stopped" if outcome["stopped_by"] in signal.Signals.__members__ else "ended"
    return "solved" if outcome["solved"] else "finished"
