"""A vector environment of a class of its own, whose numbers show what it was asked to do."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray


class CountingVectorEnv(VectorEnv[Any, Any, Any]):
    """Environments whose observations are a mark, their episode and their step.

    Its arrays are the same in each step, as those of simulators may be.

    Args:
        num_envs: how many.
        mode: the autoreset mode, by its value.
        honours: whether a reset by a mask leaves the others alone.
        fault: what to return instead of what should be: see `step`.
        at: the step of all that has the fault.
    """

    def __init__(
        self,
        num_envs: int,
        mode: str = "NextStep",
        *,
        honours: bool = True,
        fault: str = "",
        at: int = 1,
    ) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode(mode)}
        self.single_observation_space = spaces.Box(-1e6, 1e6, (3,), np.float32)
        self.single_action_space = spaces.Discrete(4)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.gravity = 9.8
        self._mode, self._honours, self._fault, self._at = mode, honours, fault, at
        self._observation = np.zeros((num_envs, 3), np.float32)
        self._length = np.zeros(num_envs, int)
        self._over = np.zeros(num_envs, bool)
        self._steps = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Reset all, or those of a mask."""
        if seed is not None:
            # Of all by one number, as it has one generator.
            super().reset(seed=int(np.sum(seed)))
        mask = None if options is None or not self._honours else options.get("reset_mask")
        self._begin(np.ones(self.num_envs, bool) if mask is None else mask)
        return self._observation, {}

    def _begin(self, mask: NDArray[np.bool_]) -> None:
        n = int(mask.sum())
        self._observation[mask, 0] = self.np_random.integers(0, 1000, n)
        self._observation[mask, 1] += 1
        self._observation[mask, 2] = 0
        self._length[mask] = self.np_random.integers(2, 9, n)
        self._over[mask] = False

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Step all; those that are over begin instead, or, in the mode that says so, must not be there."""
        assert self.action_space.contains(actions)
        assert self._mode != "Disabled" or not self._over.any()
        begins, info = self._over.copy(), {}
        self._observation[~begins, 2] += 1
        if begins.any():
            self._begin(begins)
        ended = (self._observation[:, 2] >= self._length) & ~begins
        reward = np.where(begins, 0.0, self._observation[:, 2] + np.asarray(actions) / 8)
        if self._mode == "SameStep":
            if ended.any() and self._fault != "no final_obs":
                info["final_obs"] = self._observation.copy()
            self._begin(ended)
        else:
            self._over = ended.copy()
        even = self._length % 2 == 0
        self._steps += 1
        results = [self._observation, reward, ended & even, ended & ~even, info]
        return self._spoiled(results) if self._steps == self._at else tuple(results)

    def _spoiled(self, results: list[Any]) -> tuple[Any, ...]:
        if self._fault == "NaN":
            results[0][1, 2] = np.nan
        elif self._fault == "reward":
            results[1][1] = np.inf
        elif self._fault == "flags":
            results[2] = results[2].astype(int)
        elif self._fault == "shape":
            results[0] = results[0][:-1]
        elif self._fault == "four":
            del results[3]
        return tuple(results)
