"""Step one environment without a batch: the source's own interface, for loops that people write themselves.

step_async, random_step_async, reset_async     begin, each result part by part to out arguments or kept
await_step                                     returns what was kept
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from parllel.buffers.named_tuple import NamedTuple
from parllel.cages.spaces import Spaces, caster
from parllel.cages.stepping.env_stepper import EnvStepper
from parllel.cages.stepping.step_result import STEP_OUTS, StepResult, deliver
from parllel.types import Tree


class StepMethods(ABC):
    """Methods of cages of one environment, for your own loops."""

    def step_async(
        self,
        action: Tree,
        *,
        out_obs: Any = None,
        out_next_obs: Any = None,
        out_reward: Any = None,
        out_terminated: Any = None,
        out_truncated: Any = None,
        out_info: Any = None,
    ) -> None:
        """Begin a step, and write parts of the result to the out arguments that are given.

        out_obs receives the observation to act on next, which is that of the reset if there was one;
        out_next_obs receives the observation that this step led to. A ProcessCage takes Arrays and nodes in
        memory that processes share.
        """
        outs = {
            "observation": out_obs,
            "next_observation": out_next_obs,
            "reward": out_reward,
            "terminated": out_terminated,
            "truncated": out_truncated,
            "info": out_info,
        }
        self._start_plain("step", outs, action)

    def random_step_async(self, *, out_action: Any = None, **outs: Any) -> None:
        """Begin a step with an action drawn from the action space; out arguments as for `step_async`."""
        self._start_plain("random_step", {"action": out_action, **_by_part(outs)})

    def reset_async(self, *, out_obs: Any = None, out_info: Any = None) -> None:
        """Begin a reset."""
        self._start_plain("reset", {"observation": out_obs, "info": out_info})

    @abstractmethod
    def _start_plain(self, op: str, outs: dict[str, Any], *args: Any) -> None:
        """Begin what `take_plain` does, with the out arguments of `outs` that are not None."""

    @abstractmethod
    def await_step(self) -> StepResult:
        """Wait for `step_async`, `random_step_async` or `reset_async`, and return its result."""


def take_plain(stepper: EnvStepper, op: str, outs: Mapping[str, Any], *args: Any) -> StepResult:
    """Step or reset the only environment of a stepper, and deliver the result.

    op: "step", with an action as from `plain_action`; "random_step" or "reset".
    """
    # The stepper, not the rows: these methods need no buffer.
    if op == "reset":
        observation, info = stepper.reset_one(0)
        return deliver({"observation": observation, "info": info}, outs)
    if op == "random_step":
        action, step = stepper.random_one(0)
        return deliver({"action": action, **step._asdict()}, outs)
    return deliver(stepper.step_one(0, *args)._asdict(), outs)


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


def _by_part(outs: Mapping[str, Any]) -> dict[str, Any]:
    """Return out arguments by part, `out_obs` as `observation`; raise TypeError for an unknown argument."""
    names = {argument: part for part, argument in STEP_OUTS.items()}
    unknown = [name for name in outs if name not in names]
    if unknown:
        raise TypeError(f"unexpected arguments {unknown}; expected some of {sorted(names)}")
    return {names[name]: out for name, out in outs.items()}
