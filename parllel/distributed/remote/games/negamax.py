"""Look some moves ahead on a board of ConnectX."""

from __future__ import annotations

import random

from parllel.distributed.remote.games.connectx_board import lowest_free, wins

_MOVES = 4  # it looks ahead at most
_POSITIONS = 5000  # it looks at, about: fewer moves on wide boards
_WIN = 1000.0


def best_column(board: list[int], mark: int, columns: int, rows: int, inarow: int) -> int:
    """Return the best column for the checkers `mark`, one of the best at random.

    board: changed while it searches, and as it was afterwards.
    """
    moves = _MOVES
    while moves > 1 and columns**moves > _POSITIONS:
        moves -= 1
    search = _Search(board, columns, rows, inarow)
    best, chosen = -2 * _WIN, [0]
    for column in search.free():
        # A window that keeps equals apart from those that are worse.
        score = search.after(column, mark, moves, -2 * _WIN, -best + 1)
        if score > best:
            best, chosen = score, [column]
        elif score == best:
            chosen.append(column)
    return random.choice(chosen)


class _Search:
    """Negamax with alpha-beta pruning (Knuth and Moore 1975): what is good for one is bad for the other."""

    def __init__(self, board: list[int], columns: int, rows: int, inarow: int) -> None:
        self._board, self._columns, self._rows, self._inarow = board, columns, rows, inarow

    def free(self) -> list[int]:
        """Return the columns that are not full, those in the middle first."""
        columns = [c for c in range(self._columns) if not self._board[c]]
        return sorted(columns, key=lambda c: abs(2 * c - self._columns + 1))

    def after(self, column: int, mark: int, moves: int, alpha: float, beta: float) -> float:
        """Return what a move is worth to the one who makes it: sooner wins are worth more.

        alpha, beta: from the view of the other, who is to move next.
        """
        row = lowest_free(self._board, column, self._columns, self._rows)
        cell = row * self._columns + column
        self._board[cell] = mark
        try:
            if wins(self._board, row, column, self._columns, self._rows, self._inarow):
                return _WIN + moves
            if moves <= 1:
                return 0.0
            best = -2 * _WIN
            for reply in self.free():
                best = max(best, self.after(reply, 3 - mark, moves - 1, -beta, -alpha))
                alpha = max(alpha, best)
                if alpha >= beta:
                    break
            # Nothing to reply with: the board is full.
            return 0.0 if best == -2 * _WIN else -best
        finally:
            self._board[cell] = 0
