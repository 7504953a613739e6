"""Dialogue with a language model about one chess move.

model    get board             -->  the position, drawn and in FEN
         get legal moves       -->  all of them in UCI
         make move e2e4        -->  the end, if it is legal
         anything else         -->  a correction, as for an illegal move
end      a legal move; or too many corrections, or the last turn, without one
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parllel.distributed.operators.llm.answered import answered, finished_part, strip_reasoning

_BOARD, _MOVES = "get board", "get legal moves"
_COMMANDS = {
    _BOARD: _BOARD,
    "get current board": _BOARD,
    "get the board": _BOARD,
    _MOVES: _MOVES,
    "get moves": _MOVES,
    "get the legal moves": _MOVES,
}
_UCI = re.compile(r"(?<!\w)([a-h][1-8])-?([a-h][1-8][qrbn]?)(?!\w)")
# As a call: make_move("e2e4").
_CALL = re.compile(r"make[ _]move\W+(?=[a-h][1-8])")


class ChessDialogue:
    """State of a dialogue about one move.

    Args:
        fen: the position in FEN.
        moves: the legal moves in UCI.
        attempts: number of wrong answers that are corrected.
        turns: the total number of answers, including questions.
        instructions: text put before the rules of the dialogue.

    Attributes:
        messages: messages of the dialogue so far, in the form that the client sends.
        move: the legal move that was made. None until one was made.
        named_move: the last move that was named, legal or not. None if no move was named.
        ended: whether the dialogue is over.
    """

    def __init__(
        self,
        fen: str,
        moves: Sequence[str],
        *,
        attempts: int = 3,
        turns: int = 10,
        instructions: str = "",
    ) -> None:
        self._fen, self._moves = fen, moves
        self._attempts, self._turns = attempts, turns
        self.move: str | None = None
        self.named_move: str | None = None
        self.ended = False
        side = "Black" if fen.split()[1:2] == ["b"] else "White"
        rules = (
            f"You play chess as {side}. Answer with one of these commands, alone in the last line:\n"
            f"{_BOARD}: you are shown the position.\n"
            f"{_MOVES}: you are shown all legal moves in UCI notation.\n"
            "make move e2e4: you move from e2 to e4, which ends your turn; e7e8q promotes to a queen.\n"
            f"You have {turns} answers to make a move."
        )
        self.messages: list[dict[str, str]] = [
            {"role": "system", "content": f"{instructions}\n\n{rules}" if instructions else rules},
            {"role": "user", "content": f"It is your move as {side}."},
        ]

    def take(self, text: str, *, is_cut: bool = False) -> None:
        """Process an answer of the model.

        is_cut: whether the answer ended at the token limit.
        """
        # Some servers reject messages without content.
        self.messages.append({"role": "assistant", "content": text or "(no text)"})
        self._turns -= 1
        command = _command_in(finished_part(text) if is_cut else text)
        if command == _BOARD:
            reply = f"{drawn_board(self._fen)}\nCapitals are White.\nFEN: {self._fen}"
        elif command == _MOVES:
            reply = f"Legal moves: {' '.join(self._moves)}"
        elif command in self._moves:
            self.move = self.named_move = command
            self.ended = True
            return
        else:
            self._attempts -= 1
            reply = self._correction(command)
            if is_cut:
                reply = f"Your answer was cut at the limit of tokens. Give a shorter one. {reply}"
        self.ended = self._attempts < 0 or self._turns <= 0
        answers = "1 answer" if self._turns == 1 else f"{self._turns} answers"
        self.messages.append({"role": "user", "content": f"{reply}\nYou have {answers} left."})

    def _correction(self, move: str | None) -> str:
        if move is None:
            return (
                f"That was not understood. Answer with one command in the last line: {_BOARD}, {_MOVES}, or "
                "make move with a move in UCI notation, such as make move e2e4."
            )
        self.named_move = move
        return f"{move} is not a legal move here. {_MOVES} shows those that are."


def _command_in(text: str) -> str | None:
    """Return the one command that an answer names. A move is returned in UCI, legal or not."""
    text = _CALL.sub("make move ", strip_reasoning(text).lower())
    moves = {match[0]: "".join(match.groups()) for match in _UCI.finditer(text)}
    commands = {**_COMMANDS, **{f"make move {name}": move for name, move in moves.items()}}
    return answered(text, commands, moves)


def drawn_board(fen: str) -> str:
    """Draw the board of a position, White's pieces as capitals, with the names of rows and columns."""
    rows = fen.split()[0].split("/")
    lines = []
    for number, row in zip(range(8, 0, -1), rows, strict=True):
        squares = re.sub(r"\d", lambda match: "." * int(match[0]), row)
        lines.append(f"{number} {' '.join(squares)}")
    return "\n".join([*lines, "  a b c d e f g h"])
