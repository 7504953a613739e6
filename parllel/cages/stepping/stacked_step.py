"""The result of one step of all environments of a vector environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parllel.cages.native.native_trees import final_observation, pick, rows_of
from parllel.envs.single_env_adapter import info_of
from parllel.types import Tree


class StackedStep(NamedTuple):
    """What `step` of a vector environment returned, with n environments in each array.

    Attributes:
        observation: [n, ...], after a reset where the environment resets in the same step.
        reward, terminated, truncated: [n].
        info: as the environment returned it.
        ended: [n] bool, terminated or truncated.
    """

    observation: Tree
    reward: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    info: dict[str, Any]
    ended: NDArray[np.bool_]

    def only(self, going: NDArray[np.bool_]) -> StackedStep:
        """Return it with nothing of the other environments."""
        return self._replace(
            reward=np.where(going, self.reward, 0),
            terminated=self.terminated & going,
            truncated=self.truncated & going,
            ended=self.ended & going,
        )

    def finals(
        self, which: NDArray[np.intp], *, same_step: bool, name_of: Callable[[int], str]
    ) -> list[Tree]:
        """Return copies of the last observations of the episodes that ended in this step, those of `which`.

        same_step: whether the next episodes have begun already.

        Raises:
            ValueError: if they have, and the info does not hold an observation.
        """
        if not same_step:
            # One copy for all of them.
            return rows_of(pick(self.observation, which), len(which))
        return [self._final_of(i, name_of) for i in which.tolist()]

    def _final_of(self, i: int, name_of: Callable[[int], str]) -> Tree:
        final = final_observation(self.info, i)
        if final is None:
            raise ValueError(
                f"{name_of(i)}: reset in the same step, without its last observation: expected "
                f"info['final_obs'], got {sorted(self.info)}"
            )
        return final

    def info_of(self, i: int) -> dict[str, Any]:
        """Return the info of the i-th environment's step."""
        infos = self.info
        # Where the next episode has begun already, the rest of the info is that of its reset.
        if self.ended[i] and isinstance(infos.get("final_info"), dict):
            infos = infos["final_info"]
        return info_of(infos, i, len(self.ended))
