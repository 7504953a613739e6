"""Results of steps, and final observations of episodes."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from typing import Any

from parllel.errors import WrongStateError
from parllel.types import Tree

# For each part of a result, the name of its out argument.
STEP_OUTS = {
    "action": "out_action",
    "observation": "out_obs",
    "next_observation": "out_next_obs",
    "reward": "out_reward",
    "terminated": "out_terminated",
    "truncated": "out_truncated",
    "info": "out_info",
}


class Step(typing.NamedTuple):
    """The result of one step of one environment.

    Attributes:
        observation: the observation to act on next, after any reset.
        next_observation: the observation of the step, before any reset.
        reward, terminated, truncated, info: as returned by `env.step`.
    """

    observation: Tree
    next_observation: Tree
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class FinalObservation(typing.NamedTuple):
    """The true last observation of an episode that ended at row `row` of column `column`."""

    row: int
    column: int
    observation: Tree
    truncated: bool


class Crash(typing.NamedTuple):
    """The end of an environment with its process, which was restarted.

    Attributes:
        row: the row of the batch that holds no step of this environment; None between rows, where
            results that were not yet collected are lost, and the environment needs a reset.
        column: column of the environment.
    """

    row: int | None
    column: int


class RowInfos(typing.NamedTuple):
    """Infos of one row of a cage, or of a reset.

    Attributes:
        infos: for each environment, the info of its step; of its reset, if it was reset in this row; {} if
            it did neither. Dicts may be made anew each time they are read.
        finals: by the environment's number, the last observation and the info of an episode that ended in
            this row and was followed by an automatic reset.
    """

    infos: Sequence[dict[str, Any]]
    finals: dict[int, tuple[Tree, dict[str, Any]]]


class StepResult:
    """Result of a step, with its parts as attributes.

    A part that was written to an out argument is not kept; reading it raises WrongStateError.
    """

    __slots__ = ("_parts", "_written")

    def __init__(self, parts: Mapping[str, Any], written: tuple[str, ...]) -> None:
        self._parts = dict(parts)
        self._written = written

    def __getattr__(self, name: str) -> Any:
        # Before `__init__` has run, as in unpickling, reading them below would recurse without end.
        if name in StepResult.__slots__:
            raise AttributeError(name)
        if name in self._written:
            raise WrongStateError(f"{name!r} was written to {STEP_OUTS[name]}; read it there")
        if name not in self._parts:
            raise AttributeError(f"no {name!r} in this result; it has {sorted(self._parts)}")
        return self._parts[name]

    def __repr__(self) -> str:
        return f"StepResult({self._parts}, written elsewhere: {list(self._written)})"

    def __reduce__(self) -> Any:
        # A ProcessCage's worker sends its results over the pipe.
        return StepResult, (self._parts, self._written)


def deliver(parts: Mapping[str, Any], outs: Mapping[str, Any]) -> StepResult:
    """Write each part that has an out argument to it, and return the other parts as a StepResult."""
    rest = {}
    # In a worker these writes go to the caller's shared memory. The reply that carries the rest is
    # sent afterwards, so the caller sees them once `await_step` returns.
    for name, value in parts.items():
        out = outs.get(name)
        if out is None:
            rest[name] = value
        elif name == "info":
            # Only fields that the caller has allocated: infos may have any keys.
            out[...] = {field: value[field] for field in out._fields}
        else:
            out[...] = value
    return StepResult(rest, tuple(name for name in parts if name in outs))
