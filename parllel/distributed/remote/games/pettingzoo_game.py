"""Environments of PettingZoo's interface as games: what both of its kinds have in common.

PettingZooGame   specification, seats, rewards and pictures of the agents of one environment
TurnsGame        an AEC environment: one agent acts after the other
TogetherGame     a parallel environment: all act at the same time
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.gymnasium_game import finite, random_action
from parllel.distributed.remote.games.position import Position
from parllel.distributed.remote.games.space_schema import (
    action_schema,
    check_mask,
    default_action,
    space_schema,
)
from parllel.distributed.wire.action_json import action_from_json
from parllel.distributed.wire.space_json import to_json
from parllel.envs.pettingzoo_module import action_mask_of
from parllel.envs.rewards import reward_of
from parllel.pictures.rendered_env import RenderedEnv
from parllel.types import Tree


class PettingZooGame(Game):
    """Let agents act in one environment; the reward of each is the sum of its rewards so far.

    Observations have the environment's own under "observation", as JSON by the agent's space, and
    "action_mask" if that or its info has one; and "agent", its name. The info of a step has "reward",
    "terminated" and "truncated". For an agent that failed, 0 is played from then on, or the first action
    that the mask allows.

    Args:
        name: of the game.
        make: called with `render_mode`, returns the environment.

    Raises:
        ValueError: if a space has no JSON.
    """

    observed = False
    checks_schema = False

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self._name, self._make_env = name, make
        self._env = env = make(render_mode=None)
        self.names = list(env.possible_agents)
        self._spaces: list[tuple[gym.Space[Any], gym.Space[Any]]] = [
            (env.observation_space(agent), env.action_space(agent)) for agent in self.names
        ]
        self._modes = list((getattr(env, "metadata", None) or {}).get("render_modes") or [])
        self._masks: list[list[int] | None] = [None] * len(self.names)
        self.chosen: dict[int, Tree] = {}  # actions of this step, by seat
        self.specification = {
            "name": name,
            "title": name.rpartition("/")[2],
            "description": f"{name}, as PettingZoo has it.",
            "version": "1.0.0",
            "agents": [len(self.names)],
            "observation": {
                "observation": _all_of([space_schema(seen) for seen, _ in self._spaces]),
                "action_mask": {"type": "array"},
                "agent": {"type": "string", "defaults": self.names},
            },
            "action": _actions([action_schema(action) for _, action in self._spaces]),
        }
        self.agents: Mapping[str, Callable[..., Any]] = {"random": self._random_action}

    @property
    def env(self) -> Any:
        """The environment, which is made again for pictures."""
        return self._env

    def start(self, position: Position) -> None:
        """Reset the environment with the seed of the episode."""
        if self.pictures and "rgb_array" in self._modes and self._env.render_mode != "rgb_array":
            self.close()
            self._env = self._make_env(render_mode="rgb_array")
        for seat in position.seats:
            seat.reward = 0.0

    def check_action(self, number: int, action: Any) -> None:
        """Raise ValueError for what is no action of the agent's space, or one that its mask forbids."""
        space = self._spaces[number][1]
        self.chosen[number] = action_from_json(space, action, clip=True)
        check_mask(space, self._masks[number], action)

    def see(self, position: Position, number: int, observation: Tree, info: Any) -> None:
        """Show an agent its observation."""
        fields = position.seats[number].observation
        fields["observation"] = to_json(self._spaces[number][0], observation)
        self._masks[number] = mask = action_mask_of(observation, info)
        if mask is not None:
            fields["action_mask"] = mask

    def pay(self, position: Position, number: int, reward: float, flags: tuple[bool, bool]) -> None:
        """Add the reward of a step, unless the agent has failed; an agent whose flags say so is DONE."""
        seat = position.seats[number]
        if seat.reward is None or number not in position.left:
            return
        reward = reward_of(reward, self._name, f"agent {number}")
        seat.reward = finite(self._name, seat.reward + reward)
        terminated, truncated = flags
        seat.info = {
            "reward": seat.info.get("reward", 0.0) + reward,
            "terminated": bool(terminated),
            "truncated": bool(truncated),
        }
        if terminated or truncated:
            seat.status = "DONE"

    def absent_action(self, number: int) -> Tree:
        """Return what is played for an agent that failed."""
        space, mask = self._spaces[number][1], self._masks[number]
        values = default_action(space)
        if mask is not None and isinstance(space, gym.spaces.Discrete):
            first = int(space.start)
            if not mask[values - first] and any(mask):
                values = first + mask.index(1)
        return action_from_json(space, values, clip=True)

    def _random_action(self, observation: Any, configuration: Any) -> Any:
        space = self._spaces[self.names.index(observation["agent"])][1]
        return random_action(space, observation)

    def text(self, position: Position) -> str:
        """Return the rewards so far."""
        rewards = ", ".join(
            f"{name} {seat.reward}" for name, seat in zip(self.names, position.seats, strict=True)
        )
        return f"Step {position.step}: {rewards}\n"

    def picture(self, position: Position) -> NDArray[np.uint8] | None:
        """Return a picture of the environment, if it draws itself and the game was started for pictures."""
        if self._env.render_mode != "rgb_array":
            return None
        picture: NDArray[np.uint8] = RenderedEnv(self._env, self._name).frame().copy()
        return picture

    def close(self) -> None:
        """Close the environment; may be called twice."""
        self._env.close()


def _all_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema that all agents have, else one that allows any of theirs."""
    if all(schema == schemas[0] for schema in schemas):
        return schemas[0]
    return {"anyOf": schemas}


def _actions(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    defaults = [schema.pop("default", None) for schema in schemas]
    return {**_all_of(schemas), "defaults": defaults}
