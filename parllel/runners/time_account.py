"""Where the time of a run goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from parllel.types import State

# Parts of sampling, measured in one batch of each row; all others are stages of their own.
PARTS = ("inference", "environments", "transforms")
STAGES = ("sampling", "optimising", "evaluating", "logging", "checkpoints", "imports")


class TimeAccount:
    """Seconds by stage, since the last row and in all.

    `imports` is what algorithms import only once training begins, torch's compiler above all.

    `sampling` has three parts: inference (the agent and the step transforms), environments (stepping them, or
    waiting for those that step in other processes), and transforms of finished batches. They are measured in
    one batch of each row and scaled up, as reading the clock for every row of every batch costs time itself.
    """

    def __init__(self) -> None:
        self._row = dict.fromkeys(STAGES, 0.0)
        self._total = dict.fromkeys((*STAGES, *PARTS), 0.0)
        self._shares: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time within for a stage."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._row[name] += time.perf_counter() - begin

    def see_parts(self, seconds: Mapping[str, float]) -> None:
        """Take in how long the parts of one batch took."""
        # As shares: the batch that was measured may be longer or shorter than the others.
        total = sum(seconds.values())
        self._shares = {name: value / total for name, value in seconds.items()} if total else {}

    @property
    def wants_parts(self) -> bool:
        """Whether no batch of this row has been measured."""
        return not self._shares

    def take_row(self) -> dict[str, float]:
        """Return the seconds by stage and part since the last call, and begin anew."""
        row = dict(self._row)
        # Scaled up from the batch that was measured to all batches of the row.
        row |= {part: share * row["sampling"] for part, share in self._shares.items()}
        for name, seconds in row.items():
            self._total[name] += seconds
        self._row = dict.fromkeys(self._row, 0.0)
        self._shares = {}
        return row

    def lines(self) -> list[str]:
        """Return the whole account, one stage a line, those of less than 0.05 % left out."""
        totals = {name: self._total[name] + self._row.get(name, 0.0) for name in self._total}
        # Parts are within sampling: the stages alone add up to the whole.
        all_s = sum(totals[stage] for stage in STAGES)
        lines = []
        for stage in STAGES:
            lines.append((stage, totals[stage]))
            if stage == "sampling":
                lines += [(f"  {part}", totals[part]) for part in PARTS]
        return [
            f"{name:<14}{seconds:>9.1f} s {seconds / all_s:>6.1%}"
            for name, seconds in lines
            if seconds > all_s / 2000
        ]

    def state(self) -> State:
        """Return the seconds so far."""
        return {"row": dict(self._row), "total": dict(self._total)}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""
        # Earlier checkpoints know no imports.
        self._row.update({name: float(state["row"].get(name, 0)) for name in self._row})
        total = dict(state["total"])
        if "waiting" in total:  # what checkpoints of version 0.1 call the environments
            total["environments"] = total.pop("waiting")
        self._total.update({name: float(total.get(name, 0)) for name in self._total})
