"""Adapter from PettingZoo environments (AEC and parallel) to games."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.gymnasium_game import finite, picture_of, random_action
from parllel.distributed.remote.games.position import FAILED, Position
from parllel.distributed.remote.games.space_schema import (
    action_schema,
    space_schema,
)
from parllel.distributed.wire.space_json import action_from_json, to_json
from parllel.envs.multi_agent_game import AecGame, game_of, keep_games_open, with_render_mode
from parllel.envs.pettingzoo_module import pettingzoo_maker
from parllel.types import Tree


class PettingZooGame(Game):
    """Game played in a PettingZoo environment. An agent's reward is the sum of its rewards so far.

    Observations contain the environment's observation as JSON under "observation", the agent's name
    as "agent", and "action_mask" if the observation or the info has one. The info of a step
    contains "reward", "terminated" and "truncated". After an agent has failed, action 0 is played
    for it, or the first action that its mask allows. The last remaining agent is then DONE in an
    AEC environment, and continues in a parallel one.

    Args:
        name: name of the game.
        make: function that creates the environment. It is called with `render_mode`.

    Raises:
        ValueError: for a space without a JSON form.
    """

    observed = False
    checks_schema = False

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self._name, self._make_env = name, make
        with keep_games_open():
            self._game = game = game_of(make(render_mode=None), name)
        self.names = list(game.players)
        self._in_turns = isinstance(game, AecGame)
        self._chosen: dict[int, Tree] = {}  # actions of this step, by seat
        seen = [space_schema(space) for space in game.observation_spaces.values()]
        self.specification = {
            "name": name,
            "title": name.rpartition("/")[2],
            "description": f"{name} of PettingZoo.",
            "version": "1.0.0",
            "agents": [len(self.names)],
            "observation": {
                "observation": _all_of(seen),
                "action_mask": {"type": "array"},
                "agent": {"type": "string", "defaults": self.names},
            },
            "action": _actions([action_schema(space) for space in game.action_spaces.values()]),
        }
        self.agents: Mapping[str, Callable[..., Any]] = {"random": self._random_action}

    def start(self, position: Position) -> None:
        """Reset the environment with the seed of the episode."""
        if self.pictures:
            with keep_games_open():
                env = with_render_mode(self._game.env, self._make_env, ("rgb_array",))
                if env is not self._game.env:
                    self._game = game_of(env, self._name)
        self._game.reset(self.seed)
        for number, seat in enumerate(position.seats):
            seat.reward = 0.0
            self._show(position, number)
        if self._in_turns:
            self._pass_turn(position)

    def check_action(self, number: int, action: Any) -> None:
        """Raise ValueError for an action that is not in the agent's space, or that its mask forbids."""
        name = self.names[number]
        chosen = self._chosen[number] = action_from_json(
            self._game.action_spaces[name], action, clip=True
        )
        legal = self._game.legal_actions(name)
        if legal is not None and chosen not in legal:
            raise ValueError(f"expected an action that action_mask allows, got {action}")

    def drop(self, position: Position, failed: list[int]) -> None:
        """Continue without the failed agents, for which default actions are played."""
        if self._in_turns and len(position.left) < 2:
            position.end()
        elif self._in_turns:
            self._pass_turn(position)

    def step(self, position: Position) -> None:
        """Step the environment with the actions of all agents whose turn it is."""
        movers = self._movers()
        self._play(position, movers)
        if self._in_turns:
            self._pass_turn(position)
            return
        for number in movers:
            if position.seats[number].status not in FAILED:
                self._show(position, number)

    def _movers(self) -> list[int]:
        return [self.names.index(name) for name in self._game.turn()]

    def _play(self, position: Position, movers: Iterable[int]) -> None:
        """Step the environment with the movers' actions and add the rewards."""
        acted = set(position.active)
        game = self._game
        actions = {
            self.names[n]: self._chosen[n] if n in acted else self._absent_action(n) for n in movers
        }
        for name, reward in game.step(actions).items():
            self._add_reward(position, self.names.index(name), reward, game.flags[name])

    def _pass_turn(self, position: Position) -> None:
        """Pass the turn to the next agent that has not failed, playing for those that have."""
        while position.left and (movers := self._movers()):
            (number,) = movers
            if position.seats[number].status not in FAILED:
                position.turn(number)
                break
            self._show(position, number)
            self._play(position, movers)
        for number, name in enumerate(self.names):
            # Agents that act next, and the final observation of agents that are done.
            if name in self._game.env.agents and position.seats[number].status in (
                "ACTIVE",
                "DONE",
            ):
                self._show(position, number)

    def _show(self, position: Position, number: int) -> None:
        """Write an agent's current observation to its seat."""
        fields, name = position.seats[number].observation, self.names[number]
        observation, mask = self._game.observe(name)
        fields["observation"] = to_json(self._game.observation_spaces[name], observation)
        if mask is not None:
            fields["action_mask"] = mask

    def _add_reward(
        self, position: Position, number: int, reward: float, flags: tuple[bool, bool]
    ) -> None:
        """Add the reward of a step, unless the agent has failed, and mark it DONE at its end.

        flags: terminated, truncated.
        """
        seat = position.seats[number]
        if seat.reward is None or number not in position.left:
            return
        seat.reward = finite(self._name, seat.reward + reward)
        terminated, truncated = flags
        seat.info = {
            "reward": seat.info.get("reward", 0.0) + reward,
            "terminated": terminated,
            "truncated": truncated,
        }
        if terminated or truncated:
            seat.status = "DONE"

    def _absent_action(self, number: int) -> Tree:
        """Return the action played for an agent that has failed."""
        name = self.names[number]
        self._game.observe(name)  # updates the legal actions, although nobody sees the observation
        space = self._game.action_spaces[name]
        return action_from_json(space, to_json(space, self._game.first_action(name)), clip=True)

    def _random_action(self, observation: Any, configuration: Any) -> Any:
        return random_action(self._game.action_spaces[observation["agent"]], observation)

    def text(self, position: Position) -> str:
        """Return the rewards so far."""
        rewards = ", ".join(
            f"{name} {seat.reward}" for name, seat in zip(self.names, position.seats, strict=True)
        )
        return f"Step {position.step}: {rewards}\n"

    def picture(self, position: Position) -> NDArray[np.uint8] | None:
        """Return a frame of the environment, if it renders and the game was started for pictures."""
        return picture_of(self._game.env, self._name)

    def close(self) -> None:
        """Close the environment. Idempotent."""
        self._game.close()


def pettingzoo_game(name: str) -> PettingZooGame:
    """Create the game of a module, such as "pettingzoo/classic/tictactoe_v3" or "mpe2/simple_spread_v3".

    A module with both kinds of environment is played as a parallel one.

    Raises:
        ValueError: if there is no such module, or it contains no environment.
        ImportError: if its library is not installed.
    """
    return PettingZooGame(name, pettingzoo_maker(name))


def _all_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema that all agents share, or else one that accepts any of theirs."""
    if all(schema == schemas[0] for schema in schemas):
        return schemas[0]
    return {"anyOf": schemas}


def _actions(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    defaults = [schema.pop("default", None) for schema in schemas]
    return {**_all_of(schemas), "defaults": defaults}
