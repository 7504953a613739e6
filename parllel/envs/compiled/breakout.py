"""Breakout on 84 x 84 pixels, for convolutional networks. All positions and speeds are integers, in pixels.

  x ->                                    84 x 84, origin in the upper left corner
y +--------------------------------+
| | lives                          |
v |================================|  6   this line and both sides reflect the ball
  | bricks: 6 rows of 12           | 12   a brick takes 7 x 3 pixels, a gap of one pixel included
  |                                | 30
  |          ball (2 x 2)          |
  |         paddle (12 x 2)        | 78   the ball leaves more flatly, the further from the middle it hits
  +--------------------------------+
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.envs.compiled.compiled_env import compiled_env
from parllel.system.compilation import compiled

_SIZE, _FRAMES = 84, 4
_CEILING = 6
_WALL_TOP, _ROWS, _COLUMNS = 12, 6, 12
_BRICK_WIDTH, _BRICK_HEIGHT = 7, 3
_WALL_BOTTOM = _WALL_TOP + _ROWS * _BRICK_HEIGHT
_BALL = 2
_PADDLE_Y, _PADDLE_WIDTH, _PADDLE_HEIGHT, _PADDLE_SPEED = 78, 12, 2, 3
_SERVE_Y = 40
_STAY, _LEFT, _RIGHT = range(3)

_ALL = (1 << _COLUMNS) - 1
# The bit of the brick that covers each pixel of a line; 0 for gaps.
_BITS = np.array(
    [0 if x % _BRICK_WIDTH == _BRICK_WIDTH - 1 else 1 << (x // _BRICK_WIDTH) for x in range(_SIZE)],
    np.uint16,
)
_LINE_GREY, _LIFE_GREY, _PADDLE_GREY, _BALL_GREY = 90, 120, 200, 255
_BRICK_GREYS = np.array([230, 210, 190, 170, 150, 130], np.uint8)
# From the top: red, orange, brown, yellow, green, blue.
_BRICK_COLORS = np.array(
    [
        *((200, 72, 72), (198, 108, 58), (180, 122, 48)),
        *((162, 162, 42), (72, 160, 72), (66, 72, 200)),
    ],
    np.uint8,
)
# Columns of `frames`.
_PADDLE, _X, _Y, _LIVES = range(4)


@compiled()
def _serve(state: Any, rng: Any) -> None:
    """Start the ball at a random place, downwards to the left or to the right."""
    state.x, state.y = rng.integers(10, _SIZE - 10), _SERVE_Y
    state.dx, state.dy = 2 * rng.integers(0, 2) - 1, 2


@compiled()
def _remove_brick(state: Any, x: int, y: int) -> int:
    """Remove a brick that a ball at this place touches, if there is one; returns 0 or 1."""
    if y + _BALL <= _WALL_TOP or y >= _WALL_BOTTOM:
        return 0
    bricks = state.bricks
    for corner in range(4):
        row = (y + corner // 2 * (_BALL - 1) - _WALL_TOP) // _BRICK_HEIGHT
        bit = 1 << ((x + corner % 2 * (_BALL - 1)) // _BRICK_WIDTH)
        if 0 <= row < _ROWS and bricks[_FRAMES - 1, row] & bit:
            bricks[_FRAMES - 1, row] -= bit
            # Bricks of the upper half make the ball faster until it is lost, as in Atari's game.
            if row < _ROWS // 2:
                state.dy = 3 if state.dy > 0 else -3
            return 1
    return 0


@compiled()
def _bounce_off_paddle(state: Any) -> None:
    state.y = _PADDLE_Y - _BALL
    state.dy = -state.dy
    middle = 2 * state.x + _BALL - 2 * state.paddle - _PADDLE_WIDTH  # of ball and paddle, doubled
    # Never straight up, or the ball would take the same path forever.
    dx = min(max((abs(middle) + 3) // 4, 1), 3)
    state.dx = -dx if middle < 0 or (middle == 0 and state.dx < 0) else dx


@compiled()
def _record_frame(state: Any, frame: int) -> None:
    frames = state.frames
    frames[frame, _PADDLE], frames[frame, _LIVES] = state.paddle, state.lives_left
    frames[frame, _X], frames[frame, _Y] = state.x, state.y


@compiled()
def _draw_box(picture: Any, x: int, y: int, width: int, height: int, grey: int) -> None:
    for row in range(y, y + height):
        for column in range(x, x + width):
            picture[row, column] = grey


def _observe(state: Any, out: Any) -> None:
    for frame in range(_FRAMES):
        picture = out[frame]
        picture[:, :] = 0
        picture[_CEILING - 1, :] = _LINE_GREY
        for row in range(_ROWS):
            bricks = state.bricks[frame, row]
            top = _WALL_TOP + _BRICK_HEIGHT * row
            for y in range(top, top + _BRICK_HEIGHT - 1):
                for x in range(_SIZE):
                    picture[y, x] = _BRICK_GREYS[row] if bricks & _BITS[x] else 0
        paddle, ball_x, ball_y, lives = state.frames[frame]
        for life in range(min(lives, 13)):
            _draw_box(picture, 2 + 6 * life, 1, 4, 2, _LIFE_GREY)
        _draw_box(picture, paddle, _PADDLE_Y, _PADDLE_WIDTH, _PADDLE_HEIGHT, _PADDLE_GREY)
        _draw_box(picture, ball_x, ball_y, _BALL, _BALL, _BALL_GREY)


def _render(state: Any) -> NDArray[np.uint8]:
    """Draw the latest frame four times as large, with colours for the rows of bricks."""
    frames = np.zeros((_FRAMES, _SIZE, _SIZE), np.uint8)
    _observe(state, frames)
    picture = np.repeat(frames[-1][:, :, None], 3, axis=2)
    for row, grey in enumerate(_BRICK_GREYS):
        top = _WALL_TOP + _BRICK_HEIGHT * row
        lines = picture[top : top + _BRICK_HEIGHT]
        lines[(lines == grey).all(axis=2)] = _BRICK_COLORS[row]
    return picture.repeat(4, axis=0).repeat(4, axis=1)


@compiled_env
class Breakout:
    """A paddle, a ball and a wall of 72 bricks: one of reward for each brick.

    Observations are the last four frames, uint8 [4, 84, 84], latest last, stacked as by
    `FrameStackObservation`: all four are equal after a reset. `build_sampler(..., frames=4)` stores each
    frame once. Actions: stay, left, right. The episode terminates with the last ball or the last brick.
    Only the serves are random.

    Parameters: `lives`, the number of balls.
    """

    observation_space = spaces.Box(0, 255, (_FRAMES, _SIZE, _SIZE), np.uint8)
    action_space = spaces.Discrete(3)
    state = np.dtype(
        [(name, np.int64) for name in ("paddle", "x", "y", "dx", "dy", "lives_left")]
        # Of the last frames: paddle, ball and lives, and a bit for each brick of each row.
        + [("frames", np.uint8, (_FRAMES, 4)), ("bricks", np.uint16, (_FRAMES, _ROWS))]
    )
    parameters = {"lives": 3}
    max_episode_steps = 5000
    metadata = {"render_fps": 30}
    observe = staticmethod(_observe)
    render = staticmethod(_render)

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        """Serve a ball with all bricks and lives."""
        state.paddle = (_SIZE - _PADDLE_WIDTH) // 2
        state.lives_left = state.lives
        _serve(state, rng)
        state.bricks[:, :] = _ALL
        for frame in range(_FRAMES):
            _record_frame(state, frame)

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> Any:
        """Move paddle and ball by one frame. The reward is the number of bricks that were removed."""
        bricks, frames = state.bricks, state.frames
        for frame in range(_FRAMES - 1):
            bricks[frame, :] = bricks[frame + 1, :]
            frames[frame, :] = frames[frame + 1, :]

        if action == _LEFT:
            state.paddle = max(state.paddle - _PADDLE_SPEED, 0)
        elif action == _RIGHT:
            state.paddle = min(state.paddle + _PADDLE_SPEED, _SIZE - _PADDLE_WIDTH)

        # First sideways, then up or down, so that the ball never ends up inside a brick.
        x = state.x + state.dx
        if x < 0 or x > _SIZE - _BALL:
            x = -x if x < 0 else 2 * (_SIZE - _BALL) - x
            state.dx = -state.dx
        removed = _remove_brick(state, x, state.y)
        if removed:
            state.dx = -state.dx
        else:
            state.x = x

        y = state.y + state.dy
        if y < _CEILING:
            y = 2 * _CEILING - y
            state.dy = -state.dy
        over_paddle = state.paddle - _BALL < state.x < state.paddle + _PADDLE_WIDTH
        if _remove_brick(state, state.x, y):
            removed += 1
            state.dy = -state.dy
        elif state.y + _BALL <= _PADDLE_Y <= y + _BALL and over_paddle:
            _bounce_off_paddle(state)
        else:
            state.y = min(y, _SIZE - _BALL)

        over = not bricks[_FRAMES - 1].any()
        if state.y == _SIZE - _BALL:
            state.lives_left -= 1
            if state.lives_left > 0:
                _serve(state, rng)
            else:
                over = True
        _record_frame(state, _FRAMES - 1)
        return float(removed), over
