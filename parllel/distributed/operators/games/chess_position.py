"""A position of PettingZoo's chess in the words of chess players."""

from __future__ import annotations

from typing import Any, NamedTuple


class ChessPosition(NamedTuple):
    """A position.

    fen: of the board.
    moves: in UCI, one for each legal action, in their order.
    """

    fen: str
    moves: list[str]


def chess_position(env: Any, player: int, legal: list[int] | None) -> ChessPosition | None:
    """Return the position of an environment; None if it is not chess.

    player: its number, 0 for white. Actions are numbered as the player sees the board.
    legal: its legal actions.
    """
    board = getattr(getattr(env, "unwrapped", None), "board", None)
    # By name, as games other than chess do not need its library.
    if type(board).__module__ != "chess" or legal is None:
        return None
    from pettingzoo.classic.chess.chess_utils import action_to_move

    assert board is not None
    moves = [action_to_move(board, action, player).uci() for action in legal]
    return ChessPosition(board.fen(), moves)
