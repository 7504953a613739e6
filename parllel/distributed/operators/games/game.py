"""A game of several players, whichever of PettingZoo's two interfaces it has.

Game               what both kinds have in common: spaces, legal actions, actions as JSON
SequentialGame     one player acts after the other (AEC)
SimultaneousGame   all act at the same time (POSG)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from parllel.distributed.operators.games.board_squares import board_squares
from parllel.distributed.operators.games.chess_position import chess_position
from parllel.distributed.operators.games.drawing_games import close_game, opens
from parllel.distributed.operators.protocol.choosing import Asked, offered_actions
from parllel.distributed.operators.protocol.frames import can_render
from parllel.distributed.operators.protocol.given_action import GivenAction
from parllel.distributed.operators.workers.interactive_runtime import action_names
from parllel.distributed.wire.space_json import action_from_json, to_json
from parllel.envs.pettingzoo_module import action_mask_of
from parllel.envs.space_elements import draw_actions, zero_of
from parllel.types import Closing, Tree

_LONGEST_TEXT = 2000  # characters of an observation that people choose by
_LONGEST_SPACE = 200


class Seen(NamedTuple):
    """What a player is asked with, as JSON values.

    legal: the actions that the game takes now; None if it does not say.
    info, text: what the game says of its position in words of its own.
    """

    observation: Any
    legal: list[int] | None
    info: dict[str, Any]
    text: str | None


class Game(Closing, ABC):
    """One environment of PettingZoo's interface, asked in one way.

    Args:
        env: belongs to this game, which closes it.

    Attributes:
        env: the argument.
        players: the names of all, in the order of the environment.
        flags: by player, whether its part was terminated and whether it was truncated.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        opens(env)
        self.players: tuple[str, ...] = tuple(env.possible_agents)
        self.flags: dict[str, tuple[bool, bool]] = {}
        self._closed = False
        self._observed = {name: env.observation_space(name) for name in self.players}
        self._spaces: dict[str, gym.Space[Any]] = {
            name: env.action_space(name) for name in self.players
        }
        self._legal: dict[str, list[int] | None] = {}
        self._readers = {name: GivenAction(space) for name, space in self._spaces.items()}

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Begin an episode."""

    @abstractmethod
    def turn(self) -> list[str]:
        """Return the players who act now, in the order of the environment; none at the end."""

    @abstractmethod
    def step(self, actions: Mapping[str, Tree]) -> dict[str, float]:
        """Play the actions of those who act now, and return the reward of each player who got one."""

    @abstractmethod
    def _current(self, player: str) -> tuple[Tree, Any]:
        """Return a player's observation and info."""

    def seen(self, player: str) -> Seen:
        """Return what a player who acts now is asked with; the methods below go by it until the next step."""
        observation, info = self._current(player)
        legal = self._legal[player] = self._legal_in(player, observation, info)
        text, more = None, {}
        position = chess_position(self.env, self.players.index(player), legal)
        if position is not None:
            text, more = position.fen, {"legal_moves": position.moves}
        return Seen(to_json(self._observed[player], observation), legal, more, text)

    def asked(self, player: str, seen: Seen, settings: Mapping[str, Any]) -> Asked:
        """Return what a person who plays `player` is asked.

        settings: of the person's operator, which may have "keys" and "action_names".
        """
        space, text = self._spaces[player], seen.text
        numbered: dict[str, int] | None = None
        if isinstance(space, gym.spaces.Discrete):
            numbered = {"n": int(space.n), "start": int(space.start)}
        if text is None and not can_render(self.env):
            text = str(seen.observation)[:_LONGEST_TEXT]
        moves = seen.info.get("legal_moves")
        actions = offered_actions(
            numbered,
            names=settings.get("action_names") or action_names(self.env),
            keys=settings.get("keys"),
            legal=seen.legal,
            legal_names=moves,
        )
        return Asked(
            player,
            text,
            actions,
            str(space)[:_LONGEST_SPACE],
            partial(self.check_action, player),
            board=board_squares(self.env, seen.legal, moves),
        )

    def check_action(self, player: str, values: Any) -> None:
        """Raise ValueError if JSON values stand for no action, or for one that is not legal now.

        Unlike `action_of`, nothing is clipped: a person can be asked again.
        """
        self._legal_action(player, values, clip=False)

    def action_of(self, player: str, values: Any) -> Tree:
        """Return the action that JSON values stand for, clipped to the bounds of a Box.

        Raises:
            ValueError: if they stand for none, or for one that is not legal now.
        """
        return self._legal_action(player, values, clip=True)

    def _legal_action(self, player: str, values: Any, *, clip: bool) -> Tree:
        action, legal = (
            action_from_json(self._spaces[player], values, clip=clip),
            self._legal[player],
        )
        if legal is not None and action not in legal:
            raise ValueError(f"expected a legal action, got {action}")
        return action

    def action_json(self, player: str, action: Tree) -> Any:
        """Return an action as JSON values."""
        return to_json(self._spaces[player], action)

    def draw_action(self, player: str, generator: np.random.Generator) -> Tree:
        """Return a random action, one of the legal ones where the game says which they are."""
        legal = self._legal[player]
        if legal is not None:
            return legal[int(generator.integers(len(legal)))]
        return self._readers[player].of(draw_actions(self._spaces[player], generator, ()))

    def first_action(self, player: str) -> Tree:
        """Return the first legal action; where the game does not say, 0 or what is nearest to it."""
        legal = self._legal[player]
        if legal is not None:
            return legal[0]
        return self._readers[player].of(zero_of(self._spaces[player]))

    def _legal_in(self, player: str, observation: Tree, info: Any) -> list[int] | None:
        space = self._spaces[player]
        # Masks of other spaces have no common form.
        if not isinstance(space, gym.spaces.Discrete):
            return None
        mask = action_mask_of(observation, info)
        # Some games show a mask of zeros to those who have no choice.
        if mask is None or not any(mask):
            return None
        legal: list[int] = (np.flatnonzero(mask) + int(space.start)).tolist()
        return legal

    def close(self) -> None:
        """Close the environment, at the latest with the last game that draws; may be called twice."""
        if not self._closed:
            self._closed = True
            close_game(self.env)
