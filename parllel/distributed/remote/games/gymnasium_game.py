"""Adapter from a gymnasium environment to a game of one agent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.position import PlayerState, Position
from parllel.distributed.remote.games.space_schema import (
    action_schema,
    check_mask,
    space_schema,
)
from parllel.distributed.wire.space_json import action_from_json, to_json
from parllel.envs.pettingzoo_module import action_mask_of
from parllel.envs.rewards import reward_of
from parllel.pictures.rendered_env import RenderedEnv
from parllel.policies.env_names import env_named, file_of, takes_render_mode
from parllel.types import Tree

_STEPS = 10_000  # limit for an environment without one
_MAX_STEPS = 99_999  # of any game


class GymnasiumGame(Game):
    """Game of one agent in a gymnasium environment. Its reward is the return so far.

    Observations contain the environment's observation as JSON under "observation", and "action_mask" if the
    environment's info has one. The info of a step contains "reward", "terminated" and "truncated".

    Args:
        env_id: an id, module:id or file.py:function, see `parllel.policies.env_names`.
        kwargs: keyword arguments of `gymnasium.make` or the function. They must be JSON values if
            they change the meaning of observations.

    Raises:
        ValueError: for an environment that does not exist or cannot be made, or a space without a JSON form.
    """

    observed = False
    checks_schema = False

    def __init__(self, env_id: str, **kwargs: Any) -> None:
        self._id, self._kwargs = env_id, kwargs
        self._env: gym.Env[Any, Any] | None = None
        env = self._make(None)
        if "ansi" in self._modes:
            env = self._make("ansi")
        self._observation_space, self._action_space = env.observation_space, env.action_space
        limit = env.spec.max_episode_steps if env.spec is not None else None
        self.specification = {
            "name": f"gymnasium/{env_id}",
            "title": env_id,
            "description": f"{env_id} of gymnasium.",
            "version": "1.0.0",
            "agents": [1],
            "configuration": {"episodeSteps": {"default": min(limit or _STEPS, _MAX_STEPS) + 1}},
            "observation": {
                "observation": space_schema(self._observation_space),
                "action_mask": {"type": "array"},
            },
            "action": action_schema(self._action_space),
            "reward": {"description": "The return so far.", "type": "number", "default": 0},
        }
        self._action: Tree = None
        self.agents: Mapping[str, Callable[..., Any]] = {"random": self._random_action}

    def start(self, position: Position) -> None:
        """Reset the environment with the seed of the episode."""
        env = self._env
        if env is None or (
            self.pictures and "rgb_array" in self._modes and env.render_mode != "rgb_array"
        ):
            env = self._make("rgb_array" if "rgb_array" in self._modes else None)
        observation, info = env.reset(seed=self.seed)
        (seat,) = position.seats
        seat.reward = 0.0
        self._see(seat, observation, info)

    def step(self, position: Position) -> None:
        """Step the environment."""
        assert self._env is not None
        (seat,) = position.seats
        observation, reward, terminated, truncated, info = self._env.step(self._action)
        reward = reward_of(reward, self._id)
        seat.reward = finite(self._id, float(seat.reward or 0.0) + reward)
        seat.info = {
            "reward": reward,
            "terminated": bool(terminated),
            "truncated": bool(truncated),
        }
        self._see(seat, observation, info)
        if terminated or truncated:
            position.end()

    def check_action(self, number: int, action: Any) -> None:
        """Raise ValueError for an action that is not in the space, or that the mask forbids."""
        self._action = action_from_json(self._action_space, action, clip=True)
        check_mask(self._action_space, self._mask, action)

    def _see(self, seat: PlayerState, observation: Tree, info: dict[str, Any]) -> None:
        seat.observation["observation"] = to_json(self._observation_space, observation)
        self._mask = action_mask_of(info)
        if self._mask is not None:
            seat.observation["action_mask"] = self._mask

    def _random_action(self, observation: Any, configuration: Any) -> Any:
        return random_action(self._action_space, observation)

    def text(self, position: Position) -> str:
        """Return the environment's text rendering, or else the step and the return."""
        assert self._env is not None
        if self._env.render_mode == "ansi":
            return str(self._env.render())
        return f"Step {position.step}: reward {position.seats[0].reward}\n"

    def picture(self, position: Position) -> NDArray[np.uint8] | None:
        """Return a frame of the environment, if it renders and the game was started for pictures."""
        return picture_of(self._env, self._id)

    def _make(self, mode: str | None) -> gym.Env[Any, Any]:
        self.close()
        name = f"gymnasium/{self._id}"
        # A function in a file may accept neither.
        options = {} if file_of(name) else {"render_mode": mode, "disable_env_checker": True}
        self._env = env = env_named(name, {**options, **self._kwargs})()
        modes = (env.metadata or {}).get("render_modes") or ()
        # The entry point may not accept a render mode, for example if it is a registered function.
        self._modes = list(modes) if file_of(name) or takes_render_mode(name) else []
        return env

    def close(self) -> None:
        """Close the environment. Idempotent."""
        env, self._env = self._env, None
        if env is not None:
            env.close()


def gymnasium_game(name: str) -> GymnasiumGame:
    """Create the game "gymnasium/NAME"."""
    return GymnasiumGame(name.partition("/")[2])


def finite(name: str, reward: float) -> float:
    """Return a reward. Raises ValueError for NaN and infinity, which a replay cannot contain."""
    if not math.isfinite(reward):
        raise ValueError(f"{name}: reward: expected a finite number, got {reward}")
    return reward


def picture_of(env: Any, name: str) -> NDArray[np.uint8] | None:
    """Return a copy of an environment's frame, or None if its render mode is not rgb_array."""
    if env.render_mode != "rgb_array":
        return None
    picture: NDArray[np.uint8] = RenderedEnv(env, name).frame().copy()
    return picture


def random_action(space: gym.Space[Any], observation: Mapping[str, Any]) -> Any:
    """Return a random action as JSON, within the observation's action mask."""
    mask = observation.get("action_mask")
    if mask is not None and isinstance(space, gym.spaces.Discrete):
        return to_json(space, space.sample(np.asarray(mask, np.int8)))
    return to_json(space, space.sample())
