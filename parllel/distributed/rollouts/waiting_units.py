"""Environments that have answered, and how long it is worth waiting for more."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from parllel.distributed.rollouts.arguments import check_integer, check_seconds
from parllel.distributed.rollouts.env_unit import Doing, EnvUnit

# Those that are made or parked may take for ever.
_ALIVE = (Doing.WAITING, Doing.STEPPING, Doing.RESETTING)


class WaitingUnits:
    """Keep the units that wait for an action until there are enough of them.

    Args:
        units: all that there are.
        batch_size: how many environments are enough.
        max_wait_s: how long the first that has answered waits for the others.

    Raises:
        TypeError, ValueError: for numbers that make no sense.
    """

    def __init__(self, units: Sequence[EnvUnit], batch_size: int, max_wait_s: float) -> None:
        n_environments = sum(unit.n for unit in units)
        if not 1 <= check_integer("batch_size", batch_size) <= n_environments:
            raise ValueError(
                f"batch_size: expected 1 to {n_environments}, the number of environments, got "
                f"{batch_size}: a batch that is never full would always wait for max_wait_s"
            )
        if check_seconds("max_wait_s", max_wait_s) < 0:
            raise ValueError(f"max_wait_s: expected 0 or more seconds, got {max_wait_s}")
        self._units = units
        self._batch_size, self._max_wait_s = batch_size, max_wait_s
        self._waiting: list[EnvUnit] = []
        self._first_answer = 0.0

    def add(self, unit: EnvUnit) -> None:
        """Take in a unit that has answered."""
        unit.doing = Doing.WAITING
        if not self._waiting:
            self._first_answer = time.monotonic()
        self._waiting.append(unit)

    def take(self) -> list[EnvUnit]:
        """Return all, in the order of their answers, and forget them."""
        taken, self._waiting = self._waiting, []
        return taken

    def left_s(self) -> float:
        """Return how long it is worth waiting for more: 0 if it is time to act, infinity if none waits."""
        if not self._waiting:
            return math.inf
        ready = sum(unit.n for unit in self._waiting)
        if ready >= self._batch_size:
            return 0.0
        left_s = self._first_answer + self._max_wait_s - time.monotonic()
        if left_s <= 0:
            return 0.0
        everyone = ready == sum(unit.n for unit in self._units if unit.doing in _ALIVE)
        return 0.0 if everyone else left_s
