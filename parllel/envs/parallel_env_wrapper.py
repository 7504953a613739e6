"""Base class of adapters that give access to the attributes of a parallel environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from parllel.envs.parallel_env import ParallelEnv


class ParallelEnvWrapper(gym.Env[Any, Any]):
    """Gymnasium environment that forwards attribute access to a parallel environment, like a wrapper.

    Attributes:
        parallel_env: the environment inside; set by subclasses.
    """

    parallel_env: ParallelEnv

    @property
    def env(self) -> ParallelEnv:
        """The environment inside, on which cages set attributes, as with wrappers."""
        return self.parallel_env

    def has_wrapper_attr(self, name: str) -> bool:
        """Return whether this or the environment inside has an attribute."""
        return hasattr(self, name) or hasattr(self.parallel_env, name)

    def get_wrapper_attr(self, name: str) -> Any:
        """Return an attribute of this environment, or else of the environment inside."""
        return getattr(self if hasattr(self, name) else self.parallel_env, name)

    def render(self) -> Any:
        """Render the environment inside."""
        return self.parallel_env.render()
