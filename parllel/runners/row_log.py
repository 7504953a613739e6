"""What a row of the log is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from parllel.cages.traj_info import TrajInfo
from parllel.logging.logger import Logger
from parllel.runs.run_result import RunResult
from parllel.types import State


class RowLog:
    """Collect episodes until a row is written, and bring what is logged into its form.

    Args:
        logger: gets the values; the caller writes the row.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._steps = 0
        self._episodes: list[dict[str, Any]] = []

    def add_batch(self, steps: int, trajs: Sequence[TrajInfo]) -> None:
        """Keep the episodes of a batch for the next row."""
        self._steps += steps
        self._episodes += [traj.as_dict() for traj in trajs]

    def log_batches(
        self, result: RunResult, diagnostics: Mapping[str, Any], stats: Mapping[str, Any]
    ) -> int:
        """Log the episodes since the last call and what algorithm and sampler say; return the steps since.

        diagnostics: of the algorithm, numbers and arrays.  stats: of the sampler, the same.
        """
        steps, episodes = self._steps, self._episodes
        self._steps, self._episodes = 0, []
        self.log_trajs("training", episodes, result)
        self._log_all("algorithm", diagnostics)
        self._log_all("sampler", stats)
        return steps

    def log_seconds(self, seconds: Mapping[str, float], steps: int) -> None:
        """Log the seconds by stage, and the steps per second of sampling and learning alone."""
        # Without evaluations and checkpoints, whose share depends on settings of the log.
        busy = seconds["sampling"] + seconds["optimising"]
        # The bound is for clocks too coarse to see a small batch.
        self._logger.log_value("time/steps_per_second", steps / max(busy, 1e-9))
        for name, value in seconds.items():
            self._logger.log_value(f"time/{name}_s", value)

    def log_trajs(self, group: str, rows: Sequence[Mapping[str, Any]], result: RunResult) -> None:
        """Log what is a number in every episode, and add the mean return to the curve of that name."""
        if not rows:
            return
        for name in rows[0]:
            # The mean over some episodes would pass for that of all, so all must have a number.
            values: list[Any] = [row.get(name) for row in rows]
            if all(isinstance(value, (Real, np.bool_)) for value in values):
                self._logger.log_array(f"{group}/{name}", values)
        mean = float(np.mean([row["return"] for row in rows]))
        result.curves[group].append((result.elapsed_steps, mean))

    def _log_all(self, group: str, values: Mapping[str, Any]) -> None:
        """Log numbers as they are, and arrays as their statistics."""
        for name, value in values.items():
            log = self._logger.log_array if np.ndim(value) else self._logger.log_value
            log(f"{group}/{name}", value)

    def state(self) -> State:
        """Return what has been collected; of the episodes, what would be logged."""
        return {"steps": self._steps, "episodes": [_numbers(row) for row in self._episodes]}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""
        self._steps = int(state["steps"])
        self._episodes = [dict(row) for row in state["episodes"]]


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a row, as Python's."""
    # What is no number would not be logged, and need not be something that can be saved.
    found = {name: value for name, value in row.items() if isinstance(value, (Real, np.bool_))}
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in found.items()
    }
