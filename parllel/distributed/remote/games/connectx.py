"""Connect four, or any other number, on a board of any size.

A board is a list of cells, row by row from the top; 0 is empty.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.position import Position

_COLORS = ("#ffffff", "#1c7ed6", "#e8590c")
_LARGEST = 2_500  # cells of a board; a full game's replay contains the board once per cell
_MOVES = 4  # maximum depth of negamax
_POSITIONS = 5000  # approximate number of positions it searches, so that wide boards get less depth
_WIN = 1000.0


class ConnectX(Game):
    """Two agents take turns dropping checkers into columns; the first with enough in a row wins."""

    specification: Mapping[str, Any] = {
        "name": "connectx",
        "title": "ConnectX",
        "description": "Connect four, or any other number, in a row.",
        "version": "1.0.1",
        "agents": [2],
        "configuration": {
            "actTimeout": {"default": 2},
            "columns": {
                "description": "Columns of the board.",
                "type": "integer",
                "minimum": 1,
                "default": 7,
            },
            "rows": {
                "description": "Rows of the board.",
                "type": "integer",
                "minimum": 1,
                "default": 6,
            },
            "inarow": {
                "description": "Number of checkers in a row that wins.",
                "type": "integer",
                "minimum": 1,
                "default": 4,
            },
        },
        "reward": {
            "description": "1 for a win, -1 for a loss, 0 for a tie and before the end.",
            "enum": [-1, 0, 1],
            "type": ["number", "null"],
            "default": 0,
        },
        "observation": {
            "board": {
                "description": "All cells, row by row from the top: 0 empty, else the mark.",
                "type": "array",
                "items": {"type": "integer", "minimum": 0, "maximum": 2},
                "shared": True,
                "default": [],
            },
            "mark": {
                "description": "The agent's own mark.",
                "enum": [1, 2],
                "defaults": [1, 2],
            },
        },
        "action": {
            "description": "The column to drop a checker into.",
            "type": "integer",
            "minimum": 0,
            "default": 0,
        },
        "status": {"defaults": ["ACTIVE", "INACTIVE"]},
    }

    def start(self, position: Position) -> None:
        """Clear the board."""
        cells = self.configuration["rows"] * self.configuration["columns"]
        if cells > _LARGEST:
            raise ValueError(f"connectx: expected a board of at most {_LARGEST} cells, got {cells}")
        position.shared["board"] = [0] * cells

    def step(self, position: Position) -> None:
        """Drop a checker."""
        (mover,) = position.active
        seat = position.seats[mover]
        columns, rows = self.configuration["columns"], self.configuration["rows"]
        board, column, mark = position.shared["board"], seat.action, seat.observation["mark"]
        # A JSON schema accepts 1.0 as an integer.
        if type(column) is not int or not 0 <= column < columns:
            position.refuse(mover, f"expected a column from 0 to {columns - 1}, got {column!r}")
            return
        row = lowest_free(board, column, columns, rows)
        if row < 0:
            position.refuse(mover, f"column {column} is full")
            return
        board[row * columns + column] = mark
        if wins(board, row, column, columns, rows, self.configuration["inarow"]):
            position.end({mover: 1, 1 - mover: -1})
        elif all(board):
            position.end()
        else:
            position.turn(1 - mover)

    def check(self, position: Position) -> None:
        """Check the board's size, the marks, and that at most one agent acts."""
        cells = self.configuration["rows"] * self.configuration["columns"]
        board = position.shared["board"]
        if len(board) != cells or any(type(cell) is not int for cell in board):
            raise ValueError(f"board: expected {cells} cells of 0, 1 and 2, got {len(board)}")
        if [seat.observation["mark"] for seat in position.seats] != [1, 2]:
            raise ValueError("mark: expected 1 for the first agent and 2 for the second")
        if len(position.active) > 1:
            raise ValueError("status: expected at most one ACTIVE agent, got two")

    def text(self, position: Position) -> str:
        """Return the board."""
        columns: int = self.configuration["columns"]
        board = position.shared["board"]
        line = "+---" * columns + "+\n"
        rows = [board[i : i + columns] for i in range(0, len(board), columns)]
        return line + line.join(f"| {' | '.join(map(str, row))} |\n" for row in rows) + line

    def picture(self, position: Position) -> str:
        """Return the board."""
        columns, rows = self.configuration["columns"], self.configuration["rows"]
        cells = "".join(
            f'<circle cx="{20 * (i % columns) + 10}" cy="{20 * (i // columns) + 10}" r="8" '
            f'fill="{_COLORS[cell]}"/>'
            for i, cell in enumerate(position.shared["board"])
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {20 * columns} {20 * rows}">'
            f'<rect width="{20 * columns}" height="{20 * rows}" fill="#343a40"/>{cells}</svg>'
        )


def lowest_free(board: list[int], column: int, columns: int, rows: int) -> int:
    """Return the row in which a checker would land; -1 if the column is full."""
    for row in range(rows - 1, -1, -1):
        if not board[row * columns + column]:
            return row
    return -1


def wins(board: list[int], row: int, column: int, columns: int, rows: int, inarow: int) -> bool:
    """Return whether the checker in this cell is part of `inarow` in a line."""
    mark = board[row * columns + column]
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        length = 1
        for sign in (1, -1):
            r, c = row + sign * down, column + sign * right
            while 0 <= r < rows and 0 <= c < columns and board[r * columns + c] == mark:
                length += 1
                r, c = r + sign * down, c + sign * right
        if length >= inarow:
            return True
    return False


def random_column(observation: Any, configuration: Any) -> int:
    """Choose a random column that is not full."""
    board = observation["board"]
    return random.choice([c for c in range(configuration["columns"]) if not board[c]])


def negamax(observation: Any, configuration: Any) -> int:
    """Choose the best column by a search of up to four moves, breaking ties at random."""
    columns, rows = configuration["columns"], configuration["rows"]
    return best_column(
        list(observation["board"]), observation["mark"], columns, rows, configuration["inarow"]
    )


def best_column(board: list[int], mark: int, columns: int, rows: int, inarow: int) -> int:
    """Return the best column for the player `mark`, breaking ties at random.

    board: modified during the search and restored afterwards.
    """
    moves = _MOVES
    while moves > 1 and columns**moves > _POSITIONS:
        moves -= 1
    search = _Search(board, columns, rows, inarow)
    best, chosen = -2 * _WIN, [0]
    for column in search.free():
        # The window is one point wider than usual, so that equal scores are exact and ties are recognised.
        score = search.after(column, mark, moves, -2 * _WIN, -best + 1)
        if score > best:
            best, chosen = score, [column]
        elif score == best:
            chosen.append(column)
    return random.choice(chosen)


class _Search:
    """Negamax search with alpha-beta pruning (Knuth and Moore 1975)."""

    def __init__(self, board: list[int], columns: int, rows: int, inarow: int) -> None:
        self._board, self._columns, self._rows, self._inarow = board, columns, rows, inarow

    def free(self) -> list[int]:
        """Return the columns that are not full, the middle ones first: good moves first prune more."""
        columns = [c for c in range(self._columns) if not self._board[c]]
        return sorted(columns, key=lambda c: abs(2 * c - self._columns + 1))

    def after(self, column: int, mark: int, moves: int, alpha: float, beta: float) -> float:
        """Return the value of a move for the player who makes it. Earlier wins are worth more.

        alpha, beta: window from the perspective of the opponent, who moves next.
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
            # No reply was possible: the board is full, a tie.
            return 0.0 if best == -2 * _WIN else -best
        finally:
            self._board[cell] = 0


ConnectX.agents = {"random": random_column, "negamax": negamax}
