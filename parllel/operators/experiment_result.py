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
        notes: what could not be drawn, and why.
        warnings: a sentence for each language model of whose decisions too few were understood.
    """

    folder: Path
    groups: tuple[GroupResult, ...]
    failures: tuple[str, ...]
    stopped_by: str | None
    notes: tuple[str, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(
            said for group in self.groups for one in group.operators for said in one.warnings
        )

    @property
    def exit_status(self) -> int:
        """The exit status: 130 after Ctrl-C, 143 after SIGTERM, 1 after a failure or a warning, else 0."""
        if self.stopped_by is not None:
            return 130 if self.stopped_by == "SIGINT" else 143
        return 1 if self.failures or self.warnings else 0
