"""The rules of the board: a list of cells, row by row from the top, 0 where it is empty."""

from __future__ import annotations


def lowest_free(board: list[int], column: int, columns: int, rows: int) -> int:
    """Return the row in which a checker would come to lie; -1 if the column is full."""
    for row in range(rows - 1, -1, -1):
        if not board[row * columns + column]:
            return row
    return -1


def wins(board: list[int], row: int, column: int, columns: int, rows: int, inarow: int) -> bool:
    """Return whether the checker in this cell is one of `inarow` in a line."""
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
