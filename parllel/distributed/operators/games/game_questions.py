"""Questions of a game to its players: observations, legal actions and answers as JSON.

Chess is described in chess notation. The boards of some known games can be clicked.
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

_MAX_TEXT = 2000  # characters of an observation shown to people
_MAX_SPACE = 200
_FILES = "abcdefgh"


class PlayerView(NamedTuple):
    """A player's view of the game, as JSON values.

    legal: the actions that are legal now. None if the game does not list them.
    info, text: descriptions of the position specific to the game.
    """

    observation: Any
    legal: list[int] | None
    info: dict[str, Any]
    text: str | None


class GameQuestions:
    """Builds questions for the players of a game, and reads their answers.

    Args:
        game: the game. The caller resets, steps and closes it.
    """

    def __init__(self, game: MultiAgentGame) -> None:
        self._game = game
        self._readers = {name: GivenAction(space) for name, space in game.action_spaces.items()}

    def seen(self, player: str) -> PlayerView:
        """Return the view of a player who acts now.

        The methods below refer to this view until the next step.
        """
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
        """Return the question for a person who plays `player`.

        settings: settings of the person's operator. They may contain "keys" and "action_names".
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
        """Raise ValueError unless JSON values represent an action that is legal now.

        Unlike `action_of`, this does not clip values, because a person can be asked again.
        """
        self._legal_action(player, values, clip=False)

    def action_of(self, player: str, values: Any) -> Tree:
        """Return the action that JSON values represent, clipped to the bounds of a Box.

        Raises:
            ValueError: if the values represent no action, or an illegal one.
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
        """Return a random action. If the game lists legal actions, the action is one of them."""
        return self._readers[player].of(self._game.draw_action(player, generator))

    def first_action(self, player: str) -> Tree:
        """Return the first legal action.

        If the game does not list legal actions, return the valid action nearest to 0.
        """
        return self._readers[player].of(self._game.first_action(player))


def _chess_position(env: Any, player: int, legal: list[int] | None) -> tuple[str, list[str]] | None:
    """Return the FEN of PettingZoo's chess and the legal moves in UCI, or None for other games.

    player: index of the player, 0 for white. Action numbers refer to the board as the player sees it.
    legal: legal actions; the moves have the same order.
    """
    board = getattr(getattr(env, "unwrapped", None), "board", None)
    # Recognised by module name: other games do not need the chess library.
    if type(board).__module__ != "chess" or legal is None:
        return None
    from pettingzoo.classic.chess.chess_utils import action_to_move

    assert board is not None
    return board.fen(), [action_to_move(board, action, player).uci() for action in legal]


def _board_squares(
    env: Any, legal: Sequence[int] | None, moves: Sequence[str] | None
) -> dict[str, Any] | None:
    """Return which parts of a game's picture select each legal action, as JSON values.

    moves: of chess, in UCI, in the order of `legal`.

    Returns:
        "columns" and "rows" of the board, which fills the height of the picture; "left", the fraction of the
        width on either side of the board; "squares", for each action the squares to click in order, counted
        row by row from 0 at the top left. None for games whose pictures are not known.
    """
    game = type(getattr(env, "unwrapped", env)).__module__.removeprefix("pettingzoo.classic.")
    if legal is None or not can_render(env):
        return None
    if moves is not None:
        squares = [[_chess_square(move[:2]), _chess_square(move[2:4])] for move in moves]
        return {"columns": 8, "rows": 8, "left": 0.0, "squares": squares}
    if game == "connect_four.connect_four":
        # A chip falls to the bottom wherever its column is clicked, so one row is enough.
        return {"columns": 7, "rows": 1, "left": 4 / 99, "squares": [[a] for a in legal]}
    if game == "tictactoe.tictactoe":
        # PettingZoo numbers the squares column by column.
        squares = [[action % 3 * 3 + action // 3] for action in legal]
        return {"columns": 3, "rows": 3, "left": 0.0, "squares": squares}
    return None


def _chess_square(name: str) -> int:
    # White is always at the bottom, whoever plays.
    return (8 - int(name[1])) * 8 + _FILES.index(name[0])
