"""Environments with a parallel environment inside, through which its attributes are reached."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from parllel.envs.parallel_env import ParallelEnv


class ParallelEnvWrapper(gym.Env[Any, Any]):
    """Let cages reach attributes of a parallel environment as they do those of a wrapped one.

    Attributes:
        parallel_env: the environment inside, which a class derived from this one sets.
    """

    parallel_env: ParallelEnv

    @property
    def env(self) -> ParallelEnv:
        """The environment inside, where cages look for attributes to set, as in wrappers."""
        return self.parallel_env

    def has_wrapper_attr(self, name: str) -> bool:
        """Return whether this or the environment inside has an attribute."""
        return hasattr(self, name) or hasattr(self.parallel_env, name)

    def get_wrapper_attr(self, name: str) -> Any:
        """Return an attribute of this or, where this has none, of the environment inside."""
        return getattr(self if hasattr(self, name) else self.parallel_env, name)

    def render(self) -> Any:
        """Return what the environment's own `render` returns."""
        return self.parallel_env.render()
