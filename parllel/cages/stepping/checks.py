"""Checks of the values that environments return from `step` and `reset`, single or stacked.

Cages run them during the first episode of each environment, where most mistakes show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from parllel.cages.native.native_trees import pick
from parllel.cages.spaces import Spaces
from parllel.cages.stepping.observation_check import LARGEST, ObservationCheck, brief
from parllel.types import Tree

_STEP = "(observation, reward, terminated, truncated, info)"
_FIVE = "Gymnasium's step returns five values: split done into terminated and truncated"


def check_step(result: Any, name: str) -> None:
    """Check the result of `step` against Gymnasium's API. Raises TypeError or ValueError."""
    _, reward, terminated, truncated, info = _five_of(result, name)
    # Numbers of numpy and 0-d arrays pass: rows and TrajInfos convert them.
    number = np.asarray(reward)
    if number.ndim or number.dtype.kind not in "biuf":
        raise no_number(reward, name)
    # Separately, as comparisons with NaN are false: it is not above the limit below.
    if np.isnan(number):
        raise ValueError(f"{name}: reward: expected a number, got NaN")
    if abs(number) > LARGEST:
        raise ValueError(
            f"{name}: reward: expected a number that is finite as float32, got {reward}"
        )
    for what, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, (bool, np.bool_)):
            raise TypeError(f"{name}: {what}: expected a bool, got {brief(flag)}")
    _check_info(info, name)


def _check_info(info: Any, name: str) -> None:
    if not isinstance(info, dict):
        raise TypeError(f"{name}: info: expected a dict, got {brief(info)}")


def _five_of(result: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(result, tuple) or len(result) != 5:
        # Environments written for Gym before 0.26 return four values.
        hint = f"; {_FIVE}" if isinstance(result, tuple) and len(result) == 4 else ""
        raise TypeError(f"{name}: step: expected {_STEP}, got {brief(result)}{hint}")
    return result


def check_reset(result: Any, name: str) -> None:
    """Check the result of `reset` against Gymnasium's API. Raises TypeError."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise TypeError(
            f"{name}: reset: expected (observation, info), got {brief(result)}; the info is a dict, {{}} if "
            "there is none"
        )


def old_reset(error: Exception, name: str) -> TypeError | None:
    """Build the error for a `reset` without Gymnasium's arguments; None for other errors."""
    # Recognised by the TypeError of the call: the signature of a wrapper says nothing about the environment.
    lacking = ("seed", "options")
    # By its end, as the beginning is the qualified name of the environment's or wrapper's method.
    message = str(error)
    if isinstance(error, TypeError) and message.endswith(
        tuple(f"reset() got an unexpected keyword argument '{one}'" for one in lacking)
    ):
        return TypeError(
            f"{name}: reset: expected Gymnasium's reset(*, seed=None, options=None), which returns "
            f"(observation, info): {message}"
        )
    return None


def no_number(reward: Any, name: str) -> TypeError:
    """Build the error for a reward that is not a single number."""
    return TypeError(f"{name}: reward: expected a number, got {brief(reward)}")


def old_step(error: Exception, name: str) -> TypeError | None:
    """Build the error for a `step` that returns four values; None for other errors."""
    # By CPython's text: a wrapper raises this while unpacking an inner environment's result, before
    # the checks here see anything.
    if str(error) == "not enough values to unpack (expected 5, got 4)":
        return TypeError(f"{name}: step: expected {_STEP}, got 4 values; {_FIVE}")
    return None


def none_observed(name: str) -> TypeError:
    """Build the error for a step whose observation is None."""
    return TypeError(f"{name}: observation of step: expected numbers, got None")


class StackedCheck:
    """Checks the results of a vector environment.

    Args:
        spaces: the spaces of each environment.
        name: name of all environments together, for messages.
        name_of: function that returns the name of one environment.

    Raises, when used:
        TypeError, ValueError: the errors of `check_step` and `ObservationCheck`, with the
            environment's name if it is known.
    """

    def __init__(self, spaces: Spaces, n: int, name: str, name_of: Callable[[int], str]) -> None:
        self._n, self._name, self._name_of = n, name, name_of
        self._check_all = ObservationCheck(spaces.observation, (n,))
        self._check_one = ObservationCheck(spaces.observation)

    def reset(self, result: Any) -> None:
        """Check the result of a reset of all environments."""
        check_reset(result, self._name)
        self._observation(result[0], "observation of reset")

    def step(self, result: Any) -> None:
        """Check the result of a step."""
        observation, reward, terminated, truncated, info = _five_of(result, self._name)
        self._numbers(reward, "reward", "biuf")
        self._numbers(terminated, "terminated", "b")
        self._numbers(truncated, "truncated", "b")
        # NaN fails too, as comparisons with it are false.
        wrong = np.flatnonzero(~(np.abs(reward) <= LARGEST))
        if len(wrong):
            i = int(wrong[0])
            raise ValueError(
                f"{self._name_of(i)}: reward: expected a number that is finite as float32, got "
                f"{reward[i]}"
            )
        _check_info(info, self._name)
        self._observation(observation, "observation of step")

    def _numbers(self, array: Any, what: str, kinds: str) -> None:
        fits = isinstance(array, np.ndarray) and array.shape == (self._n,)
        if not fits or array.dtype.kind not in kinds:
            expected = "bool" if kinds == "b" else "numbers"
            raise TypeError(
                f"{self._name}: {what}: expected an array of {self._n} {expected}, got {brief(array)}"
            )

    def _observation(self, observation: Tree, what: str) -> None:
        try:
            self._check_all(observation, f"{self._name}: {what}")
        except (TypeError, ValueError):
            # Repeat one by one to name the environment, which the check of the stack cannot.
            for i in range(self._n):
                try:
                    one = pick(observation, i)
                except Exception:  # fewer rows than environments; the first error says so
                    break
                self._check_one(one, f"{self._name_of(i)}: {what}")
            raise
