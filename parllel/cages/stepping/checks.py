"""Check what an environment returns from `step` and `reset`.

Cages do this during the first episode of each environment, where most mistakes show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parllel.cages.stepping.brief import brief
from parllel.cages.stepping.observation_check import LARGEST

_STEP = "(observation, reward, terminated, truncated, info)"
_FIVE = "Gymnasium's step returns five values: split done into terminated and truncated"


def check_step(result: Any, name: str) -> None:
    """Raise TypeError or ValueError unless `result` is what Gymnasium's `step` must return."""
    if not isinstance(result, tuple) or len(result) != 5:
        # Environments written for Gym before version 0.26 return four values.
        hint = f"; {_FIVE}" if isinstance(result, tuple) and len(result) == 4 else ""
        raise TypeError(f"{name}: step: expected {_STEP}, got {brief(result)}{hint}")
    _, reward, terminated, truncated, info = result
    number = np.asarray(reward)
    if number.ndim or number.dtype.kind not in "biuf":
        raise no_number(reward, name)
    if np.isnan(number):
        raise ValueError(f"{name}: reward: expected a number, got NaN")
    if abs(number) > LARGEST:
        raise ValueError(
            f"{name}: reward: expected a number, got {reward}, which is not finite in 32 bits"
        )
    for what, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, (bool, np.bool_)):
            raise TypeError(f"{name}: {what}: expected a bool, got {brief(flag)}")
    if not isinstance(info, dict):
        raise TypeError(f"{name}: info: expected a dict, got {brief(info)}")


def check_reset(result: Any, name: str) -> None:
    """Raise TypeError unless `result` is what Gymnasium's `reset` must return."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise TypeError(
            f"{name}: reset: expected (observation, info), got {brief(result)}; the info is a dict, {{}} if "
            "there is none"
        )


def old_reset(error: Exception, name: str) -> TypeError | None:
    """Return the error for a `reset` that lacks the arguments of Gymnasium's; None for other errors."""
    # Seen by what the call raised: signatures of wrappers say nothing of the environment within.
    lacking = ("seed", "options")
    said = str(error)
    if isinstance(error, TypeError) and said.endswith(
        tuple(f"reset() got an unexpected keyword argument '{one}'" for one in lacking)
    ):
        return TypeError(
            f"{name}: reset: expected Gymnasium's reset(*, seed=None, options=None), which returns "
            f"(observation, info): {said}"
        )
    return None


def no_number(reward: Any, name: str) -> TypeError:
    """Return the error for a reward that is not one number."""
    return TypeError(f"{name}: reward: expected a number, got {brief(reward)}")


def old_step(error: Exception, name: str) -> TypeError | None:
    """Return the error for a `step` of four values that was taken apart; None for other errors."""
    if str(error) == "not enough values to unpack (expected 5, got 4)":
        return TypeError(f"{name}: step: expected {_STEP}, got 4 values; {_FIVE}")
    return None


def none_observed(name: str) -> TypeError:
    """Return the error for a step without an observation."""
    return TypeError(f"{name}: observation of step: expected numbers, got None")
