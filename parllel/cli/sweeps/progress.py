"""Progress of a run, read from its progress.csv while it is written."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

from parllel.pictures.learning_curve import Curve, read_curve


@dataclass
class Progress:
    """Steps and returns of a run.

    Args:
        path: folder of the run, which may not exist yet.
        key: column of the returns.

    Attributes:
        steps: environment steps at the last row, or None.
        curve: points `(steps, return)`.
    """

    path: Path
    key: str
    steps: int | None = None
    curve: Curve = field(default_factory=list)
    _size: int = -1

    @property
    def value(self) -> float | None:
        """The last return, or None."""
        return self.curve[-1][1] if self.curve else None

    def refresh(self) -> bool:
        """Read the rows again if there are new ones. Returns whether something was read."""
        file = self.path / "progress.csv"
        try:
            size = file.stat().st_size
        except OSError:  # nothing yet
            return False
        if size == self._size:
            return False
        self._size = size
        steps, self.curve = _points(file, "step"), _points(file, self.key)
        self.steps = int(steps[-1][0]) if steps else None
        return True


def _points(file: Path, key: str) -> Curve:
    try:
        return read_curve(file, key)
    except (OSError, ValueError, IndexError, csv.Error):  # no such column yet, or damage
        return []
