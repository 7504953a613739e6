"""An environment that stays as it is while the others of its SyncVectorEnv are stepped."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from parllel.cages.spaces import example_of


class RestingEnv(gym.Wrapper[Any, Any, Any, Any]):
    """In the place of an environment whose episode has ended and that waits for a reset.

    Attributes, methods and `close` are those of the environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._zeros = example_of(env.observation_space)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Do nothing."""
        return self._zeros, 0.0, False, False, {}


def rest(core: Any, i: int) -> None:
    """Let the i-th environment of a SyncVectorEnv rest."""
    if not isinstance(core.envs[i], RestingEnv):
        core.envs[i] = RestingEnv(core.envs[i])
    # Otherwise the next step would reset it, or refuse to step any.
    core._autoreset_envs[i] = False


def wake_all(core: Any) -> None:
    """Let all environments of a SyncVectorEnv be stepped again."""
    core.envs[:] = awake_envs(core)


def awake_envs(core: Any) -> list[Any]:
    """Return the environments of a SyncVectorEnv, those that rest as they are themselves."""
    return [env.env if isinstance(env, RestingEnv) else env for env in core.envs]
