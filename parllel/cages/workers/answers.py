"""The result of an environment's step, and the observation that is kept from the end of an episode."""

from __future__ import annotations

from typing import Any, NamedTuple

from parllel.types import Tree


class Step(NamedTuple):
    """The result of one step of one environment.

    Attributes:
        observation: what to act on next; after a reset, if there was one.
        next_observation: what the step led to, before any reset.
        reward, terminated, truncated, info: as `env.step` returned them.
    """

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
