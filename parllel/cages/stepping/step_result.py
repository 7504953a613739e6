"""Return the result of one step, or write its parts to out arguments, for cages of one environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from parllel.buffers.named_tuple import NamedTuple
from parllel.cages.spaces import Spaces, caster
from parllel.errors import WrongStateError
from parllel.types import Tree

# For each part of a result, the name of the argument to which it can be written instead.
STEP_OUTS = {
    "action": "out_action",
    "observation": "out_obs",
    "next_observation": "out_next_obs",
    "reward": "out_reward",
    "terminated": "out_terminated",
    "truncated": "out_truncated",
    "info": "out_info",
}


class StepResult:
    """The parts of a result, as attributes.

    A part that was written to an out argument is not kept: reading it raises WrongStateError.
    """

    __slots__ = ("_parts", "_written")

    def __init__(self, parts: Mapping[str, Any], written: tuple[str, ...]) -> None:
        self._parts = dict(parts)
        self._written = written

    def __getattr__(self, name: str) -> Any:
        # Before `__init__` has run, reading them below would call this method again, without end.
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
        return StepResult, (self._parts, self._written)


def deliver(parts: Mapping[str, Any], outs: Mapping[str, Any]) -> StepResult:
    """Write the parts that have an out argument, and return the others as a StepResult."""
    rest = {}
    for name, value in parts.items():
        out = outs.get(name)
        if out is None:
            rest[name] = value
        elif name == "info":
            out[...] = {field: value[field] for field in out._fields}
        else:
            out[...] = value
    return StepResult(rest, tuple(name for name in parts if name in outs))


def check_outs(outs: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the out arguments that are not None, by part; raise TypeError for one that cannot be written."""
    given = {name: out for name, out in outs.items() if out is not None}
    for name, out in given.items():
        if not hasattr(out, "__setitem__"):
            raise TypeError(f"{what}: {STEP_OUTS[name]}: expected an Array or node, got {out!r}")
    return given


def plain_action(environment: Spaces, action: Tree) -> Any:
    """Return an action as the environment expects it, clipped to its Box.

    action: a scalar, array, Array, dict or node of a buffer.
    """
    return _plain(environment.action, action)


def _plain(space: Any, action: Tree) -> Any:
    if hasattr(space, "spaces"):
        parts = action._asdict() if isinstance(action, NamedTuple) else action
        if isinstance(space.spaces, Mapping):
            return {name: _plain(inner, parts[name]) for name, inner in space.spaces.items()}
        values = parts.values() if isinstance(parts, dict) else parts
        return tuple(_plain(s, part) for s, part in zip(space.spaces, values, strict=True))
    array = np.array(action)
    if isinstance(space, spaces.Discrete):
        return int(array)
    if array.shape != space.shape:
        raise ValueError(f"action: expected shape {space.shape}, got {array.shape}")
    row = array[np.newaxis]
    return caster(space, row.shape)(row)[0, ...]


def by_part(outs: Mapping[str, Any]) -> dict[str, Any]:
    """Return out arguments by part, `out_obs` as `observation`; raise TypeError for an unknown argument."""
    names = {argument: part for part, argument in STEP_OUTS.items()}
    unknown = [name for name in outs if name not in names]
    if unknown:
        raise TypeError(f"unexpected arguments {unknown}; expected some of {sorted(names)}")
    return {names[name]: out for name, out in outs.items()}
