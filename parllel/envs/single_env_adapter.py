"""Adapter from a vector environment of one environment to a plain environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from parllel.envs.rewards import reward_of
from parllel.types import Tree

AnyVectorEnv: TypeAlias = "VectorEnv[Any, Any, Any]"


class SingleEnvAdapter(gym.Env[Any, Any]):
    """Present a vector environment that holds one environment as a `gymnasium.Env`.

    Use it where a single environment is needed but only a native vector environment exists, for example in
    remote evaluation, for recording or in a cage of one environment. Observations are copies.

    Args:
        vector_env: vector environment with `num_envs` 1, in any autoreset mode.
        remake: function that creates a vector environment with the given seed. Pass it for environments
            whose seed is fixed at construction: a seeded reset then replaces the current environment.

    Raises:
        ValueError: unless `vector_env` holds exactly one environment.
    """

    def __init__(
        self, vector_env: AnyVectorEnv, remake: Callable[[int], AnyVectorEnv] | None = None
    ) -> None:
        if vector_env.num_envs != 1:
            raise ValueError(
                f"vector_env: expected a single environment, got {vector_env.num_envs} in {vector_env}"
            )
        self.vector_env = vector_env
        self._remake = remake
        self._name = str(vector_env)
        self.observation_space = vector_env.single_observation_space
        self.action_space = vector_env.single_action_space
        self.metadata = vector_env.metadata
        self.render_mode = getattr(vector_env, "render_mode", None)
        self.spec = getattr(vector_env, "spec", None)
        self._same_step = self.metadata.get("autoreset_mode") == AutoresetMode.SAME_STEP
        # Observation and info of the autoreset within the step that ended the last episode.
        self._begun: tuple[Tree, dict[str, Any]] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tree, dict[str, Any]]:
        """Begin an episode. Without arguments, the one that an autoreset has already begun."""
        begun, self._begun = self._begun, None
        if begun is not None and seed is None and not options:
            return begun
        if seed is not None and self._remake is not None:
            self.vector_env.close()
            self.vector_env, seed = self._remake(seed), None
        given: dict[str, Any] = {} if seed is None else {"seed": seed}
        if options:
            given["options"] = options
        observations, infos = self.vector_env.reset(**given)
        return self._first(observations), info_of(infos, 0, 1)

    def step(self, action: Tree) -> tuple[Tree, float, bool, bool, dict[str, Any]]:
        """Step the environment."""
        # A new array for each step, because an environment may keep a reference to its actions.
        empty: Any = create_empty_array(self.action_space, n=1)
        actions = concatenate(self.action_space, [action], empty)
        observations, rewards, terminated, truncated, infos = self.vector_env.step(actions)
        observation, info = self._first(observations), info_of(infos, 0, 1)
        ended = bool(terminated[0]), bool(truncated[0])
        if any(ended) and self._same_step:
            # `final_info` is the info of the ended step; the rest belongs to the reset.
            final, final_info = info.pop("final_obs"), info.pop("final_info", {})
            self._begun, (observation, info) = (observation, info), (final, final_info)
        return observation, reward_of(rewards[0], self._name), *ended, info

    def render(self) -> Any:
        """Render the environment."""
        pictures = self.vector_env.render()
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        """Close the vector environment."""
        self.vector_env.close()

    def _first(self, observations: Tree) -> Tree:
        space = self.vector_env.observation_space
        return _copied(next(iter(iterate(space, observations))))


def info_of(infos: dict[str, Any], i: int, n: int) -> dict[str, Any]:
    """Return the info of one of a vector environment's n environments, without the `_key` masks.

    A key is left out if its mask is false for this environment. A value that is not an array, list or tuple
    of length n applies to all environments.
    """
    found: dict[str, Any] = {}
    for key, value in infos.items():
        # A mask has its key's name with an underscore; other private names are the environment's own.
        if key.startswith("_") and key[1:] in infos:
            continue
        has = infos.get(f"_{key}")
        if has is not None and not has[i]:
            continue
        if isinstance(value, dict):
            value = info_of(value, i, n)
        elif _is_of_each(value, n):
            flags = isinstance(value, np.ndarray) and value.dtype == np.bool_ and value.ndim == 1
            # Python's bool: an array of numpy bools cannot be told from one of any objects.
            value = bool(value[i]) if flags else value[i]
        found[key] = value
    return found


def _is_of_each(value: Any, n: int) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.shape[:1] == (n,))
    return isinstance(value, (list, tuple)) and len(value) == n


def _copied(value: Tree) -> Tree:
    """Copy arrays, because environments may overwrite theirs."""
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    return np.array(value) if isinstance(value, np.ndarray) else value
