"""The result of a run."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field

from parllel.types import State

Curve = list[tuple[int, float]]


@dataclass
class RunResult:
    """The result of a run.

    Attributes:
        elapsed_steps: environment steps sampled for training; steps of evaluations do not count.
        evaluation_return: mean return of the last evaluation; NaN if there was none.
        solved: whether an evaluation reached the target.
        stopped_by: what ended the run early: "SIGINT", "SIGTERM", or the reason given to `stop`; else None.
        curves: points `(steps, mean return)`, keyed by "training" and "evaluation".
    """

    elapsed_steps: int = 0
    evaluation_return: float = float("nan")
    solved: bool = False
    stopped_by: str | None = None
    curves: dict[str, Curve] = field(default_factory=lambda: {"training": [], "evaluation": []})

    @property
    def exit_status(self) -> int:
        """Exit status for a script, by shell convention: 130 after SIGINT, 143 after SIGTERM, else 0."""
        if self.stopped_by is None or self.stopped_by not in signal.Signals.__members__:
            return 0
        return 128 + signal.Signals[self.stopped_by].value

    @property
    def best(self) -> tuple[int, float] | None:
        """Steps and mean return of the best evaluation (the first, if several are equal), or None.

        The evaluation before training does not count, because the mode of an untrained policy may
        be good by luck.
        """
        # Evaluations whose mean is not finite are skipped.
        found = [
            point for point in self.curves["evaluation"] if point[0] > 0 and math.isfinite(point[1])
        ]
        return max(found, key=lambda point: point[1], default=None)

    def state(self) -> State:
        """Return the state for a checkpoint."""
        return {
            "elapsed_steps": self.elapsed_steps,
            "evaluation_return": self.evaluation_return,
            "curves": {name: [list(point) for point in c] for name, c in self.curves.items()},
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. `solved` is not part of it."""
        self.elapsed_steps = int(state["elapsed_steps"])
        self.evaluation_return = float(state["evaluation_return"])
        self.load_curves(state)

    def load_curves(self, state: State) -> None:
        """Restore only the curves, if the state has any."""
        for name, curve in state.get("curves", {}).items():
            self.curves[name] = [(int(step), float(value)) for step, value in curve]
