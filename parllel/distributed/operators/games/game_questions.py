"""A game as its players are asked: observations, legal actions and answers as JSON, and games that are known.

Chess is shown in the words of chess players, and boards whose pictures are known can be clicked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from parllel.distributed.operators.protocol.choosing import Question, offered_actions
from parllel.distributed.operators.protocol.frames import can_render
from parllel.distributed.operators.protocol.given_action import GivenAction
from parllel.distributed.operators.workers.interactive_runtime import action_names
from parllel.distributed.wire.space_json import action_from_json, to_json
from parllel.envs.multi_agent_game import MultiAgentGame
from parllel.types import Tree

_MAX_TEXT = 2000  # characters of an observation that people choose by
_MAX_SPACE = 200
_FILES = "abcdefgh"


class PlayerView(NamedTuple):
    """What a player is asked with, as JSON values.

    legal: the actions that the game takes now; None if it does not say.
    info, text: what the game says of its position in words of its own.
    """

    observation: Any
    legal: list[int] | None
    info: dict[str, Any]
    text: str | None


class GameQuestions:
    """Put a game to its players, and read what they answer.

    Args:
        game: which its owner resets, steps and closes.
    """

    def __init__(self, game: MultiAgentGame) -> None:
        self._game = game
        self._readers = {name: GivenAction(space) for name, space in game.action_spaces.items()}

    def seen(self, player: str) -> PlayerView:
        """Return what a player who acts now is asked with; the methods below go by it until the next step."""
        game = self._game
        observation, _ = game.observe(player)
        legal = game.legal_actions(player)
        text, more = None, {}
        position = _chess_position(game.env, game.players.index(player), legal)
        if position is not None:
            text, moves = position
            more = {"legal_moves": moves}
        return PlayerView(to_json(game.observation_spaces[player], observation), legal, more, text)

    def asked(self, player: str, seen: PlayerView, settings: Mapping[str, Any]) -> Question:
        """Return what a person who plays `player` is asked.

        settings: of the person's operator, which may have "keys" and "action_names".
        """
        env, space, text = self._game.env, self._game.action_spaces[player], seen.text
        numbered: dict[str, int] | None = None
        if isinstance(space, gym.spaces.Discrete):
            numbered = {"n": int(space.n), "start": int(space.start)}
        if text is None and not can_render(env):
            text = str(seen.observation)[:_MAX_TEXT]
        moves = seen.info.get("legal_moves")
        actions = offered_actions(
            numbered,
            names=settings.get("action_names") or action_names(env),
            keys=settings.get("keys"),
            legal=seen.legal,
            legal_names=moves,
        )
        return Question(
            player,
            text,
            actions,
            str(space)[:_MAX_SPACE],
            partial(self.check_action, player),
            board=_board_squares(env, seen.legal, moves),
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
        action = action_from_json(self._game.action_spaces[player], values, clip=clip)
        legal = self._game.legal_actions(player)
        if legal is not None and action not in legal:
            raise ValueError(f"expected a legal action, got {action}")
        return action

    def action_json(self, player: str, action: Tree) -> Any:
        """Return an action as JSON values."""
        return to_json(self._game.action_spaces[player], action)

    def draw_action(self, player: str, generator: np.random.Generator) -> Tree:
        """Return a random action, one of the legal ones where the game says which they are."""
        return self._readers[player].of(self._game.draw_action(player, generator))

    def first_action(self, player: str) -> Tree:
        """Return the first legal action; where the game does not say, 0 or what is nearest to it."""
        return self._readers[player].of(self._game.first_action(player))


def _chess_position(env: Any, player: int, legal: list[int] | None) -> tuple[str, list[str]] | None:
    """Return the FEN of PettingZoo's chess and its legal moves in UCI; None if it is not chess.

    player: its number, 0 for white. Actions are numbered as the player sees the board.
    legal: its legal actions; the moves are in their order.
    """
    board = getattr(getattr(env, "unwrapped", None), "board", None)
    # By name, as games other than chess do not need its library.
    if type(board).__module__ != "chess" or legal is None:
        return None
    from pettingzoo.classic.chess.chess_utils import action_to_move

    assert board is not None
    return board.fen(), [action_to_move(board, action, player).uci() for action in legal]


def _board_squares(
    env: Any, legal: Sequence[int] | None, moves: Sequence[str] | None
) -> dict[str, Any] | None:
    """Return where a game's picture is clicked to choose each legal action, as JSON values.

    moves: of chess, in UCI, in the order of `legal`.

    Returns:
        "columns" and "rows" of the board, which fills the height of the picture; "left", the part of its
        width on either side that is no board; "squares", for each action those to click one after the other,
        row by row from 0 at the top left. None for games whose pictures are not known.
    """
    game = type(getattr(env, "unwrapped", env)).__module__.removeprefix("pettingzoo.classic.")
    if legal is None or not can_render(env):
        return None
    if moves is not None:
        squares = [[_chess_square(move[:2]), _chess_square(move[2:4])] for move in moves]
        return {"columns": 8, "rows": 8, "left": 0.0, "squares": squares}
    if game == "connect_four.connect_four":
        # A chip falls, wherever in its column it is put.
        return {"columns": 7, "rows": 1, "left": 4 / 99, "squares": [[one] for one in legal]}
    if game == "tictactoe.tictactoe":
        # Its actions go down the columns.
        squares = [[one % 3 * 3 + one // 3] for one in legal]
        return {"columns": 3, "rows": 3, "left": 0.0, "squares": squares}
    return None


def _chess_square(name: str) -> int:
    # White is at the bottom, whoever plays.
    return (8 - int(name[1])) * 8 + _FILES.index(name[0])
