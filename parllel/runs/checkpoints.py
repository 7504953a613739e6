"""The checkpoints of a run: one file per step, of which the last few are kept.

step-000000020480.zip                  a complete checkpoint
step-000000020480.zip.1f2e3d4c.tmp     left by a killed process, removed by the next save
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from parllel.runs.state_file import load_state, save_state
from parllel.types import State

_NAME = re.compile(r"step-(\d+)\.zip")


class Checkpoints:
    """Saves states by step, and loads the newest undamaged one.

    Args:
        folder: folder of the checkpoints, created by the first save.
        keep: number of checkpoints to keep.

    Raises:
        ValueError: if `keep` is less than one.
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep: expected at least 1, got {keep}")
        self.folder = Path(folder)
        self.keep = keep

    def save(self, step: int, state: State) -> Path:
        """Write a checkpoint, remove the oldest beyond `keep`, and return the path of the new one.

        Checkpoints of later steps are removed too. They are damaged, or belong to steps that were
        discarded when the run was resumed from an older checkpoint.

        Raises:
            ValueError: if `step` is negative.
            TypeError: if the state cannot be saved. The message names the part.
            OSError: if the checkpoint cannot be written (full disk, for example). The others are
                kept.
        """
        if step < 0:
            raise ValueError(f"step: expected at least 0, got {step}")
        self.folder.mkdir(parents=True, exist_ok=True)
        # Left by processes killed while writing. The run is locked, so nobody else is writing now.
        for leftover in self.folder.glob("step-*.zip.*.tmp"):
            _remove(leftover)
        # Zero-padded, so that sorting by name is sorting by step.
        path = self.folder / f"step-{step:012d}.zip"
        save_state(path, state)
        # Old checkpoints are removed only when the new one is complete.
        older = [old for old in self.paths() if _step_of(old) < step]
        kept = [path, *older[max(0, len(older) + 1 - self.keep) :]]
        for old in self.paths():
            if old not in kept:
                _remove(old)
        return path

    def paths(self) -> list[Path]:
        """Return the files of all checkpoints, sorted by the step in their names."""
        if not self.folder.is_dir():
            return []
        found = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(found, key=_step_of)

    def load_newest(self, warn: Callable[[str], object] | None = None) -> tuple[Path, State]:
        """Return the path and state of the newest readable checkpoint.

        warn: function called with a message for each damaged checkpoint that is skipped.

        Raises:
            FileNotFoundError: if there is no checkpoint.
            ValueError: if all checkpoints are damaged.
        """
        paths = self.paths()
        if not paths:
            raise FileNotFoundError(f"{self.folder}: there is no checkpoint")
        # Fall back to older ones: a disk may damage a file that was written completely.
        for path in reversed(paths):
            try:
                return path, load_state(path)
            except (ValueError, OSError) as error:
                if warn is not None:
                    warn(f"skipped a checkpoint: {error}")
                last = error
        raise ValueError(f"{self.folder}: none of {len(paths)} checkpoints can be read: {last}")


def _step_of(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match.group(1))


def _remove(path: Path) -> None:
    # A file that cannot be removed is no reason to stop training.
    with contextlib.suppress(OSError):
        path.unlink()
