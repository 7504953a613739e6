"""Stepping one environment without a batch, for your own loops.

step_async, random_step_async, reset_async     start; parts of the result are written to out arguments
await_step                                     waits, and returns the other parts
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from parllel.buffers.named_tuple import NamedTuple
from parllel.cages.spaces import Spaces, caster, discrete_scalar
from parllel.cages.stepping.env_stepper import EnvStepper
from parllel.cages.stepping.step_result import STEP_OUTS, StepResult, deliver
from parllel.types import Tree


class StepMethods(ABC):
    """Methods of cages with one environment, for your own loops."""

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
        """Start a step. Parts of the result are written to the out arguments that are given.

        `out_obs` receives the next observation to act on: the reset's observation if there was a
        reset. `out_next_obs` receives the observation of this step before any reset. A ProcessCage
        accepts Arrays and nodes in shared memory.
        """
        # They belong to the cage until `await_step` returns: a worker may write
        # them at any time before.
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
        """Start a step with an action sampled from the action space; out arguments as for `step_async`."""
        self._start_plain("random_step", {"action": out_action, **_by_part(outs)})

    def reset_async(self, *, out_obs: Any = None, out_info: Any = None) -> None:
        """Start a reset."""
        self._start_plain("reset", {"observation": out_obs, "info": out_info})

    @abstractmethod
    def _start_plain(self, op: str, outs: dict[str, Any], *args: Any) -> None:
        """Start `take_plain`, with the out arguments of `outs` that are not None."""

    @abstractmethod
    def await_step(self) -> StepResult:
        """Wait for `step_async`, `random_step_async` or `reset_async`, and return its result."""


def take_plain(stepper: EnvStepper, op: str, outs: Mapping[str, Any], *args: Any) -> StepResult:
    """Step or reset the only environment of a stepper, and deliver the result.

    op: "step", with an action from `plain_action`; "random_step" or "reset".
    """
    # Uses the stepper rather than rows, as no buffer is needed.
    if op == "reset":
        observation, info = stepper.reset_one(0)
        return deliver({"observation": observation, "info": info}, outs)
    if op == "random_step":
        action, step = stepper.random_one(0)
        return deliver({"action": action, **step._asdict()}, outs)
    return deliver(stepper.step_one(0, *args)._asdict(), outs)


def check_outs(outs: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the out arguments that are not None, by part. Raises TypeError if one cannot be written to."""
    # Checked before anything starts. A wrong shape is found only by `deliver`,
    # after the step was made.
    given = {name: out for name, out in outs.items() if out is not None}
    for name, out in given.items():
        if not hasattr(out, "__setitem__"):
            raise TypeError(f"{what}: {STEP_OUTS[name]}: expected an Array or node, got {out!r}")
    return given


def plain_action(environment: Spaces, action: Tree) -> Any:
    """Convert an action to what the environment expects, clipped to its Box.

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
    # Copied: it may be a view of a batch, which is overwritten while the
    # environment keeps its action.
    array = np.array(action)
    if isinstance(space, spaces.Discrete):
        number = array.item()
        # The same as rows pass: both interfaces must play the same episodes. What is no whole number is left
        # to the environment to refuse.
        return discrete_scalar(space, number) if isinstance(number, int) else number
    # Otherwise the caster would broadcast it against the bounds.
    if array.shape != space.shape:
        raise ValueError(f"action: expected shape {space.shape}, got {array.shape}")
    row = array[np.newaxis]
    # With the dots, a space of shape () gets a 0-d array, as it samples, and not a numpy scalar.
    return caster(space, row.shape)(row)[0, ...]


def _by_part(outs: Mapping[str, Any]) -> dict[str, Any]:
    """Return out arguments by part, e.g. `out_obs` as `observation`. Raises TypeError for unknown ones."""
    # `**outs` accepts any name, and a misspelled one would silently receive nothing.
    names = {argument: part for part, argument in STEP_OUTS.items()}
    unknown = [name for name in outs if name not in names]
    if unknown:
        raise TypeError(f"unexpected arguments {unknown}; expected some of {sorted(names)}")
    return {names[name]: out for name, out in outs.items()}
