"""Where a game's picture is clicked to choose an action: the squares of boards whose pictures are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parllel.distributed.operators.protocol.frames import can_render

_FILES = "abcdefgh"


def board_squares(
    env: Any, legal: Sequence[int] | None, moves: Sequence[str] | None
) -> dict[str, Any] | None:
    """Return the squares of each legal action, as JSON values; None for games whose pictures are not known.

    moves: of chess, in UCI, in the order of `legal`.

    Returns:
        "columns" and "rows" of the board, which fills the height of the picture; "left", the part of its
        width on either side that is no board; "squares", for each action those to click one after the other,
        row by row from 0 at the top left.
    """
    game = type(getattr(env, "unwrapped", env)).__module__.removeprefix("pettingzoo.classic.")
    if legal is None or not can_render(env):
        return None
    if moves is not None:
        squares = [[_square(move[:2]), _square(move[2:4])] for move in moves]
        return {"columns": 8, "rows": 8, "left": 0.0, "squares": squares}
    if game == "connect_four.connect_four":
        # A chip falls, wherever in its column it is put.
        return {"columns": 7, "rows": 1, "left": 4 / 99, "squares": [[one] for one in legal]}
    if game == "tictactoe.tictactoe":
        # Its actions go down the columns.
        squares = [[one % 3 * 3 + one // 3] for one in legal]
        return {"columns": 3, "rows": 3, "left": 0.0, "squares": squares}
    return None


def _square(name: str) -> int:
    # White is at the bottom, whoever plays.
    return (8 - int(name[1])) * 8 + _FILES.index(name[0])
