"""What came of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from parllel.distributed.operators.experiments.results import GroupResult


@dataclass(frozen=True)
class ExperimentResult:
    """What came of an experiment.

    Attributes:
        folder: of the run, with its telemetry.
        groups: the results of each environment and each game.
        failures: a sentence for each operator that failed.
        stopped_by: "SIGINT", "SIGTERM" or "page" if the user ended it early; "budget"; else None.
        notes: a sentence for each operator whose worker contradicts what was counted; what could not be
            drawn, and why; why the budget ended the experiment.
        spent: tokens, calls and cost, of interrupted episodes too; None without a budget.
        warnings: a sentence for each language model of whose decisions too few were understood.
    """

    folder: Path
    groups: tuple[GroupResult, ...]
    failures: tuple[str, ...]
    stopped_by: str | None
    notes: tuple[str, ...]
    spent: Mapping[str, float] | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all operators, in the order of the groups."""
        return tuple(
            said for group in self.groups for one in group.operators for said in one.warnings
        )

    @property
    def exit_status(self) -> int:
        """The exit status: 130 after Ctrl-C, 143 after SIGTERM, else 1 if not all is well, or 0."""
        if self.stopped_by in ("SIGTERM", "page"):
            return 143
        if self.stopped_by == "SIGINT":
            return 130
        return 1 if self.stopped_by or self.failures or self.warnings else 0
