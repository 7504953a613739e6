"""What came of an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parllel.operators.results import GroupResult


@dataclass(frozen=True)
class ExperimentResult:
    """What came of an experiment.

    Attributes:
        folder: of the run, with its telemetry.
        groups: the results of each environment and each game.
        failures: a sentence for each operator that failed.
        stopped_by: "SIGINT" or "SIGTERM" if the user ended it early; else None.
        notes: a sentence for each operator whose worker contradicts what was counted; what could not be
            drawn, and why.
    """

    folder: Path
    groups: tuple[GroupResult, ...]
    failures: tuple[str, ...]
    stopped_by: str | None
    notes: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        """The exit status for a script: 130 after Ctrl-C, 143 after SIGTERM, 1 after a failure, else 0."""
        if self.stopped_by is not None:
            return 130 if self.stopped_by == "SIGINT" else 143
        return 1 if self.failures else 0
