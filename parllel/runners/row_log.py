"""What has happened since the last row of a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from parllel.cages import TrajInfo
from parllel.logging import Logger
from parllel.types import State


class RowLog:
    """Collect episodes until a row is written, and bring what is logged into its form.

    Args:
        logger: gets the values; who calls writes the row.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._steps = 0
        self._episodes: list[dict[str, Any]] = []

    def add_batch(self, steps: int, trajs: Sequence[TrajInfo]) -> None:
        """Take in a batch."""
        self._steps += steps
        self._episodes += [traj.as_dict() for traj in trajs]

    def take(self) -> tuple[int, list[dict[str, Any]]]:
        """Return the steps and episodes since the last call."""
        steps, episodes = self._steps, self._episodes
        self._steps, self._episodes = 0, []
        return steps, episodes

    def log_trajs(self, group: str, rows: Sequence[Mapping[str, Any]]) -> float:
        """Log what is a number in every episode, and return the mean return."""
        for name in rows[0]:
            values: list[Any] = [row.get(name) for row in rows]
            if all(isinstance(value, (Real, np.bool_)) for value in values):
                self._logger.log_array(f"{group}/{name}", values)
        return float(np.mean([row["return"] for row in rows]))

    def log_all(self, group: str, values: Mapping[str, Any]) -> None:
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
    found = {name: value for name, value in row.items() if isinstance(value, (Real, np.bool_))}
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in found.items()
    }
