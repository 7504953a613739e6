"""What a vector environment says of its environments: spaces, metadata and render mode."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym

from parllel.cages.cage_interface import CageInterface
from parllel.cages.stepping.make_envs import equal_space
from parllel.envs.states.random_state import load_space_state, space_state


class Description(NamedTuple):
    """Attributes of the first environment.

    Attributes:
        observation_space, action_space: copies, with the state of its generators, so that samples continue
            the sequence that the function making the environment may have seeded.
        metadata: a copy.  render_mode: None if it does not render.
        reachable: whether functions can be called with each environment; False for native vector environments
            that are not made of single ones.
    """

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    reachable: bool


def describe(cage: CageInterface) -> Description:
    """Return the attributes of a cage's first environment."""
    observation_space = equal_space(cage.spaces.observation)
    action_space = equal_space(cage.spaces.action)
    try:
        ((states, metadata, render_mode),) = cage.env_apply(_attributes, which=[0])
    except TypeError:
        # A native vector environment, whose environments cannot be reached one by one.
        metadata, render_mode = _native(cage, "metadata"), _native(cage, "render_mode")
        return Description(observation_space, action_space, metadata or {}, render_mode, False)
    # Not the spaces themselves: pickling one makes every later look-up in it slower, see `equal_space`.
    for space, state in zip((observation_space, action_space), states, strict=True):
        load_space_state(space, state)
    return Description(observation_space, action_space, metadata, render_mode, True)


def _native(cage: CageInterface, name: str) -> Any:
    try:
        return cage.env_method(name)[0]
    except AttributeError:
        return None


def _attributes(env: Any) -> tuple[list[Any], dict[str, Any], str | None]:
    return (
        [space_state(space) for space in (env.observation_space, env.action_space)],
        dict(getattr(env, "metadata", None) or {}),
        getattr(env, "render_mode", None),
    )
