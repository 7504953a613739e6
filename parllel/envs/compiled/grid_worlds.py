"""MiniGrid's Empty, FourRooms and DoorKey, compiled.

The same seeds and actions give the layouts, images, rewards and ends of MiniGrid 3.2 in an `ImgObsWrapper`.
An observation is what the agent sees, uint8 [7, 7, 3]: kind, colour and state of each cell, in MiniGrid's
numbers. Missions and directions are not observed.

`grid[x, y]` of the record is one of the cells below. Directions are right, down, left and up (0 to 3).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.envs.compiled.compiled_env import compiled_env
from parllel.system.compilation import compiled

_VIEW = 7
_FLOOR, _WALL, _GOAL, _KEY, _OPEN, _CLOSED, _LOCKED = range(7)
# Kind, colour and state of each cell, as MiniGrid encodes them.
_KIND = np.array([1, 2, 8, 5, 4, 4, 4], np.uint8)
_COLOR = np.array([0, 5, 1, 4, 4, 4, 4], np.uint8)
_STATE = np.array([0, 0, 0, 0, 0, 1, 2], np.uint8)
_DX = np.array([1, 0, -1, 0])
_DY = np.array([0, 1, 0, -1])
_LEFT, _RIGHT, _FORWARD, _PICK_UP, _DROP, _TOGGLE = range(6)


def _record(size: int) -> np.dtype[Any]:
    integers = ("x", "y", "direction", "n_steps", "max_steps")
    return np.dtype(
        [
            ("grid", np.uint8, (size, size)),
            *((name, np.int64) for name in integers),
            ("carries_key", np.bool_),
        ]
    )


# ------------------------------------------------------------------ layouts


@compiled()
def _begin(state: Any, max_steps: int) -> Any:
    """Begin an episode in an empty room with walls around it; returns the grid."""
    grid = state.grid
    last = grid.shape[0] - 1
    grid[:, :] = _FLOOR
    grid[0, :] = _WALL
    grid[last, :] = _WALL
    grid[:, 0] = _WALL
    grid[:, last] = _WALL
    state.x = state.y = -1
    state.n_steps = 0
    state.max_steps = max_steps
    state.carries_key = False
    return grid


@compiled()
def _free_cell(state: Any, rng: Any, width: int) -> tuple[int, int]:
    """Draw a random empty cell of the first `width` columns, other than the agent's."""
    grid = state.grid
    while True:
        x = rng.integers(0, width)
        y = rng.integers(0, grid.shape[1])
        if grid[x, y] == _FLOOR and not (x == state.x and y == state.y):
            return x, y


@compiled()
def _place_agent(state: Any, rng: Any, width: int) -> None:
    x, y = _free_cell(state, rng, width)
    state.x, state.y = x, y
    state.direction = rng.integers(0, 4)


def _reset_empty(state: Any, rng: Any) -> None:
    size = state.grid.shape[0]
    grid = _begin(state, 4 * size * size)
    grid[size - 2, size - 2] = _GOAL
    state.x = state.y = 1
    state.direction = 0


def _reset_empty_random(state: Any, rng: Any) -> None:
    size = state.grid.shape[0]
    grid = _begin(state, 4 * size * size)
    grid[size - 2, size - 2] = _GOAL
    _place_agent(state, rng, size)


def _reset_four_rooms(state: Any, rng: Any) -> None:
    size = state.grid.shape[0]
    grid = _begin(state, 100)
    middle = size // 2
    grid[middle, :] = _WALL
    grid[:, middle] = _WALL
    # The gaps, in the order of MiniGrid's draws: above, left, right, below.
    grid[middle, rng.integers(1, middle)] = _FLOOR
    grid[rng.integers(1, middle), middle] = _FLOOR
    grid[rng.integers(middle + 1, 2 * middle), middle] = _FLOOR
    grid[middle, rng.integers(middle + 1, 2 * middle)] = _FLOOR
    _place_agent(state, rng, size)
    x, y = _free_cell(state, rng, size)
    grid[x, y] = _GOAL


def _reset_door_key(state: Any, rng: Any) -> None:
    size = state.grid.shape[0]
    grid = _begin(state, 10 * size * size)
    grid[size - 2, size - 2] = _GOAL
    wall = rng.integers(2, size - 2)
    grid[wall, :] = _WALL
    _place_agent(state, rng, wall)
    grid[wall, rng.integers(1, size - 2)] = _LOCKED
    x, y = _free_cell(state, rng, wall)
    grid[x, y] = _KEY


# ------------------------------------------------------------------ steps


def _step(state: Any, action: Any, rng: Any) -> Any:
    state.n_steps += 1
    grid = state.grid
    x, y = state.x + _DX[state.direction], state.y + _DY[state.direction]
    ahead = grid[x, y]
    if action == _LEFT:
        state.direction = (state.direction + 3) % 4
    elif action == _RIGHT:
        state.direction = (state.direction + 1) % 4
    elif action == _FORWARD:
        if ahead in (_FLOOR, _GOAL, _OPEN):
            state.x, state.y = x, y
        if ahead == _GOAL:
            return 1 - 0.9 * (state.n_steps / state.max_steps), True
    elif action == _PICK_UP:
        if ahead == _KEY and not state.carries_key:
            state.carries_key = True
            grid[x, y] = _FLOOR
    elif action == _DROP:
        if ahead == _FLOOR and state.carries_key:
            state.carries_key = False
            grid[x, y] = _KEY
    elif action == _TOGGLE:
        if ahead == _OPEN:
            grid[x, y] = _CLOSED
        elif ahead == _CLOSED or (ahead == _LOCKED and state.carries_key):
            grid[x, y] = _OPEN
    return 0.0, False


# ------------------------------------------------------------------ images


@compiled()
def _look(state: Any, out: Any) -> None:
    """Write the cells in front of the agent to channel 0; the agent is in the middle of the last row."""
    grid = state.grid
    size = grid.shape[0]
    dx, dy = _DX[state.direction], _DY[state.direction]
    for column in range(_VIEW):
        right = column - _VIEW // 2
        for row in range(_VIEW):
            ahead = _VIEW - 1 - row
            x = state.x + dx * ahead - dy * right
            y = state.y + dy * ahead + dx * right
            inside = 0 <= x < size and 0 <= y < size
            out[column, row, 0] = grid[x, y] if inside else _WALL


@compiled()
def _write_cell(out: Any, column: int, row: int, cell: int) -> None:
    out[column, row, 0] = _KIND[cell]
    out[column, row, 1] = _COLOR[cell]
    out[column, row, 2] = _STATE[cell]


@compiled()
def _write_agent(state: Any, out: Any) -> None:
    # The agent sees what it carries in its own place.
    _write_cell(out, _VIEW // 2, _VIEW - 1, _KEY if state.carries_key else _FLOOR)


def _observe_through_walls(state: Any, out: Any) -> None:
    _look(state, out)
    for column in range(_VIEW):
        for row in range(_VIEW):
            _write_cell(out, column, row, out[column, row, 0])
    _write_agent(state, out)


def _observe(state: Any, out: Any) -> None:
    _look(state, out)
    # Until the end, channel 1 marks visible cells. Sight spreads from visible cells other than walls and
    # closed doors: to the right and then to the left within a row, and from there to the row ahead.
    out[:, :, 1] = 0
    out[_VIEW // 2, _VIEW - 1, 1] = 1
    last = _VIEW - 1
    for row in range(last, -1, -1):
        for i in range(2 * last):
            column, side = (i, 1) if i < last else (2 * last - i, -1)
            cell = out[column, row, 0]
            if not out[column, row, 1] or cell in (_WALL, _CLOSED, _LOCKED):
                continue
            out[column + side, row, 1] = 1
            if row > 0:
                out[column + side, row - 1, 1] = 1
                out[column, row - 1, 1] = 1
    for column in range(_VIEW):
        for row in range(_VIEW):
            if out[column, row, 1]:
                _write_cell(out, column, row, out[column, row, 0])
            else:
                out[column, row, 0] = 0
                out[column, row, 2] = 0
    _write_agent(state, out)


_TILE = 16
_TILE_COLORS = np.array(
    [
        *((0, 0, 0), (100, 100, 100), (0, 255, 0), (255, 255, 0)),
        *((60, 60, 0), (160, 160, 0), (110, 110, 0)),
    ],
    np.uint8,
)


def _render(state: Any) -> NDArray[np.uint8]:
    """Draw each cell in its colour, a key as a small square, and the agent as a red triangle."""
    picture: NDArray[np.uint8] = _TILE_COLORS[np.asarray(state.grid).T]
    picture = picture.repeat(_TILE, 0).repeat(_TILE, 1)
    picture[::_TILE] = picture[:, ::_TILE] = 60
    for x, y in np.argwhere(np.asarray(state.grid) == _KEY):
        tile = picture[y * _TILE + 1 : (y + 1) * _TILE, x * _TILE + 1 : (x + 1) * _TILE]
        tile[...] = 0
        tile[5:-5, 5:-5] = _TILE_COLORS[_KEY]
    # Of an agent that looks to the right.
    across, along = np.mgrid[-1 : 1 : _TILE * 1j, -1 : 1 : _TILE * 1j]
    triangle = (np.abs(across) <= (0.7 - along) / 2) & (along >= -0.7)
    x, y = state.x * _TILE, state.y * _TILE
    tile = picture[y : y + _TILE, x : x + _TILE]
    tile[np.rot90(triangle, -state.direction)] = (255, 0, 0)
    return picture


# ------------------------------------------------------------------ environments


class _GridWorld:
    observation_space = spaces.Box(0, 255, (_VIEW, _VIEW, 3), np.uint8)
    action_space = spaces.Discrete(7)
    metadata = {"render_fps": 10}
    step = staticmethod(_step)
    observe = staticmethod(_observe)
    render = staticmethod(_render)


class _Empty(_GridWorld):
    reset = staticmethod(_reset_empty)
    observe = staticmethod(_observe_through_walls)


class _EmptyRandom(_Empty):
    reset = staticmethod(_reset_empty_random)


class _DoorKey(_GridWorld):
    reset = staticmethod(_reset_door_key)


@compiled_env
class Empty5x5(_Empty):
    """A room with a goal in the corner: MiniGrid-Empty-5x5-v0."""

    state = _record(5)
    max_episode_steps = 4 * 5**2


@compiled_env
class Empty6x6(_Empty):
    """A room with a goal in the corner: MiniGrid-Empty-6x6-v0."""

    state = _record(6)
    max_episode_steps = 4 * 6**2


@compiled_env
class Empty8x8(_Empty):
    """A room with a goal in the corner: MiniGrid-Empty-8x8-v0."""

    state = _record(8)
    max_episode_steps = 4 * 8**2


@compiled_env
class Empty16x16(_Empty):
    """A room with a goal in the corner: MiniGrid-Empty-16x16-v0."""

    state = _record(16)
    max_episode_steps = 4 * 16**2


@compiled_env
class EmptyRandom5x5(_EmptyRandom):
    """A room in which the agent starts anywhere: MiniGrid-Empty-Random-5x5-v0."""

    state = _record(5)
    max_episode_steps = 4 * 5**2


@compiled_env
class EmptyRandom6x6(_EmptyRandom):
    """A room in which the agent starts anywhere: MiniGrid-Empty-Random-6x6-v0."""

    state = _record(6)
    max_episode_steps = 4 * 6**2


@compiled_env
class FourRooms(_GridWorld):
    """Four rooms, with agent and goal anywhere: MiniGrid-FourRooms-v0."""

    state = _record(19)
    max_episode_steps = 100
    reset = staticmethod(_reset_four_rooms)


@compiled_env
class DoorKey5x5(_DoorKey):
    """A locked door, its key and a goal behind it: MiniGrid-DoorKey-5x5-v0."""

    state = _record(5)
    max_episode_steps = 10 * 5**2


@compiled_env
class DoorKey6x6(_DoorKey):
    """A locked door, its key and a goal behind it: MiniGrid-DoorKey-6x6-v0."""

    state = _record(6)
    max_episode_steps = 10 * 6**2


@compiled_env
class DoorKey8x8(_DoorKey):
    """A locked door, its key and a goal behind it: MiniGrid-DoorKey-8x8-v0."""

    state = _record(8)
    max_episode_steps = 10 * 8**2


@compiled_env
class DoorKey16x16(_DoorKey):
    """A locked door, its key and a goal behind it: MiniGrid-DoorKey-16x16-v0."""

    state = _record(16)
    max_episode_steps = 10 * 16**2
