"""Environments as a factory makes them: looked over, compared with each other and seeded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from parllel.cages.spaces import Spaces

EnvFactory: TypeAlias = Callable[[], "gym.Env[Any, Any]"]


def make_env(factory: EnvFactory) -> gym.Env[Any, Any]:
    """Call a factory; TypeError unless what it makes looks like an environment."""
    env = factory()
    for needed in ("reset", "step", "observation_space", "action_space"):
        if not hasattr(env, needed):
            raise TypeError(
                f"environment factory: expected a gymnasium.Env, got {env!r} without {needed!r}"
            )
    return env


def spaces_of(envs: Sequence[gym.Env[Any, Any]], index: int = 0) -> Spaces:
    """Return the spaces that all have; ValueError where they differ, with numbers counted from `index`."""
    first = envs[0]
    spec = getattr(first, "spec", None)
    name = spec.id if spec is not None else type(getattr(first, "unwrapped", first)).__name__
    expected = first.observation_space, first.action_space
    for i, env in enumerate(envs, index):
        came = env.observation_space, env.action_space
        if came != expected:
            raise ValueError(
                f"environment {i}: its spaces differ from those of environment {index}: expected "
                f"{expected[0]} and {expected[1]}, got {came[0]} and {came[1]}"
            )
    return Spaces(*expected, name)


def words_of(seed: Any) -> tuple[int | None, int | None]:
    """Return two independent ints of a seed: for the environment and for its action space."""
    if seed is None:
        return None, None
    if not isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(seed)
    first, second = seed.generate_state(2)
    return int(first), int(second)


def seeded_action_space(env: gym.Env[Any, Any], seed: Any) -> gym.Space[Any]:
    """Return a copy of the action space with a generator of its own."""
    # A copy: environments of one class may share a space, whose generator would then be shared too.
    space = copy.deepcopy(env.action_space)
    word = words_of(seed)[1]
    if word is not None:
        space.seed(word)
    return space
