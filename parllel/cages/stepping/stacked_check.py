"""Check what a vector environment returns, all environments at once.

Cages do this until the first episode of each environment is over, where most mistakes show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from parllel.cages.native.native_trees import pick
from parllel.cages.spaces import Spaces
from parllel.cages.stepping.brief import brief
from parllel.cages.stepping.observation_check import LARGEST, ObservationCheck
from parllel.types import Tree


class StackedCheck:
    """A check of the results of n environments.

    Args:
        spaces: of each environment.
        name: what messages call all of them.
        name_of: returns what messages call one of them.

    Raises, when used:
        TypeError, ValueError: as `check_step` and `ObservationCheck` do; names the environment where it is
            known.
    """

    def __init__(self, spaces: Spaces, n: int, name: str, name_of: Callable[[int], str]) -> None:
        self._n, self._name, self._name_of = n, name, name_of
        self._check_all = ObservationCheck(spaces.observation, (n,))
        self._check_one = ObservationCheck(spaces.observation)

    def reset(self, result: Any) -> None:
        """Check what `reset` of all returned."""
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            raise TypeError(
                f"{self._name}: reset: expected (observation, info), got {brief(result)}"
            )
        self._observation(result[0], "observation of reset")

    def step(self, result: Any) -> None:
        """Check what `step` returned."""
        if not isinstance(result, tuple) or len(result) != 5:
            raise TypeError(
                f"{self._name}: step: expected (observation, reward, terminated, truncated, info), "
                f"got {brief(result)}"
            )
        observation, reward, terminated, truncated, info = result
        self._numbers(reward, "reward", "biuf")
        self._numbers(terminated, "terminated", "b")
        self._numbers(truncated, "truncated", "b")
        # Comparisons with NaN are false, so NaN is not within either.
        wrong = np.flatnonzero(~(np.abs(reward) <= LARGEST))
        if len(wrong):
            i = int(wrong[0])
            raise ValueError(
                f"{self._name_of(i)}: reward: expected a number that is finite in 32 bits, got {reward[i]}"
            )
        if not isinstance(info, dict):
            raise TypeError(f"{self._name}: info: expected a dict, got {brief(info)}")
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
            # Once more, one by one: the check of all knows no environments.
            for i in range(self._n):
                try:
                    one = pick(observation, i)
                except Exception:  # fewer than there should be: what was raised says it
                    break
                self._check_one(one, f"{self._name_of(i)}: {what}")
            raise
