"""What an environment answers to a step, and what is kept of the end of an episode."""

from __future__ import annotations

from typing import Any, NamedTuple

from parllel.types import Tree


class Step(NamedTuple):
    """One environment's answer. `observation` is what to act on next: after a reset, if there was one."""

    observation: Tree
    next_observation: Tree
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class FinalObservation(NamedTuple):
    """The true last observation of an episode that ended at row `row` of column `column`."""

    row: int
    column: int
    observation: Tree
    truncated: bool
