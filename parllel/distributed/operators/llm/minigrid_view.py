"""Description of a MiniGrid agent's view in words.

The view is a square of W x W cells; the first index runs from left to right, the second from far to near. The
agent is in the middle of the nearest row and faces away from it. Each cell is (kind, colour, state), by the
numbers below. The agent's own cell holds what it carries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# In the order of MiniGrid's numbers.
KINDS = (
    *("unseen", "empty", "wall", "floor", "door", "key", "ball", "box"),
    *("goal", "lava", "agent"),
)
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
DOOR_STATES = ("open", "closed", "locked")
_COMPASS = ("east", "south", "west", "north")
_UNSEEN, _EMPTY, _WALL, _FLOOR, _DOOR = range(5)
_GOAL, _LAVA, _AGENT = 8, 9, 10


def describe_view(image: Any, direction: int | None = None) -> str:
    """Describe what the agent sees, nearest things first, one per line.

    image: [W, W, 3] integers, W odd.
    direction: the agent's heading, 0 for east, then clockwise; None leaves it out.

    Raises:
        ValueError: if the image is not an agent's view, but one of the whole grid, for example.
    """
    cells = np.asarray(image)
    check_view(cells.shape)
    if (cells[:, :, 0] >= _AGENT).any():
        raise ValueError(
            "MiniGrid: expected the agent's own view, got an image that contains the agent or unknown kinds "
            "of things; remove wrappers such as FullyObsWrapper"
        )
    width = len(cells)
    column, row = width // 2, width - 1
    lines = [] if direction is None else [f"You look {_COMPASS[int(direction)]}."]
    ways = (("Ahead", 0, -1), ("To your left", -1, 0), ("To your right", 1, 0))
    lines += [f"{name}: {_way(cells, column, row, dx, dy)}." for name, dx, dy in ways]
    things = _things(cells, column, row)
    lines += ["You see:", *(f"- {thing}" for thing in things)] if things else ["You see no things."]
    carried = tuple(map(int, cells[column, row]))
    lines.append(f"You carry {_named(carried) if carried[0] > _EMPTY else 'nothing'}.")
    return "\n".join(lines)


def check_view(shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an image of this shape can be an agent's view."""
    width = shape[0] if shape else 0
    if shape != (width, width, 3) or width % 2 == 0 or width < 3:
        raise ValueError(
            f"MiniGrid: expected a view of [W, W, 3] with odd W, such as (7, 7, 3), got {shape}; remove "
            "wrappers that change it"
        )


def _things(cells: Any, column: int, row: int) -> list[str]:
    """Return everything except walls and floor, with its position, by distance."""
    found = []
    for x, y in np.argwhere(~np.isin(cells[:, :, 0], (_UNSEEN, _EMPTY, _WALL, _FLOOR))).tolist():
        ahead, side = row - y, x - column
        if ahead or side:
            thing = _named(tuple(map(int, cells[x, y])))
            found.append((ahead + abs(side), ahead, side, f"{thing}, {_place(ahead, side)}"))
    return [text for *_, text in sorted(found)]


def _place(ahead: int, side: int) -> str:
    parts = []
    if ahead:
        parts.append(f"{_steps(ahead)} ahead")
    if side:
        parts.append(f"{_steps(abs(side))} to the {'left' if side < 0 else 'right'}")
    return " and ".join(parts)


def _steps(n: int) -> str:
    return "1 step" if n == 1 else f"{n} steps"


def _way(cells: Any, x: int, y: int, dx: int, dy: int) -> str:
    """Return how many cells are free in a straight line, and what follows."""
    n_free = 0
    while True:
        x, y = x + dx, y + dy
        if not (0 <= x < len(cells) and 0 <= y < len(cells)) or cells[x, y, 0] == _UNSEEN:
            end = "nothing that you can see"
            break
        if cells[x, y, 0] not in (_EMPTY, _FLOOR):
            end = _named(tuple(map(int, cells[x, y])))
            break
        n_free += 1
    if n_free:
        return f"{n_free} free {'cell' if n_free == 1 else 'cells'}, then {end}"
    return end


def _named(cell: tuple[int, ...]) -> str:
    kind, colour, state = cell
    if kind == _WALL:
        return "a wall"
    if kind == _LAVA:
        return "lava"
    if kind == _GOAL:
        return f"a {COLOURS[colour]} goal square"
    if kind == _DOOR:
        word = DOOR_STATES[state]
        return f"{'an' if word == 'open' else 'a'} {word} {COLOURS[colour]} door"
    return f"a {COLOURS[colour]} {KINDS[kind]}"
