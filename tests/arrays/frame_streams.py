"""Streams of stacks as gymnasium's FrameStackObservation makes them, from plain queues."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays import LazyFramesArray


class Stacker:
    """One environment: `reset` and `step` return stacks of the last `k` random frames.

    Args:
        frame: shape of a frame.
        padding: what stands before the first frame of an episode: that frame ("reset") or zeros ("zero").
        values: how many different numbers there are; few of them let frames be equal by chance.
    """

    def __init__(
        self,
        k: int,
        frame: tuple[int, ...],
        dtype: Any,
        padding: str,
        seed: Any,
        values: int = 200,
    ) -> None:
        self._frame, self._dtype = frame, np.dtype(dtype)
        self._padding, self._values = padding, values
        self._rng = np.random.default_rng(seed)
        self._queue: deque[NDArray[Any]] = deque(maxlen=k)
        self._k = k

    def _draw(self) -> NDArray[Any]:
        return self._rng.integers(0, self._values, self._frame).astype(self._dtype)

    def reset(self) -> NDArray[Any]:
        frame = self._draw()
        before = frame if self._padding == "reset" else np.zeros_like(frame)
        self._queue.extend([before] * (self._k - 1))
        self._queue.append(frame)
        return np.stack(self._queue)

    def step(self) -> NDArray[Any]:
        self._queue.append(self._draw())
        return np.stack(self._queue)


def stacks_of(
    rows: int,
    columns: int,
    k: int,
    frame: tuple[int, ...],
    dtype: Any = np.uint8,
    *,
    seed: int = 0,
    p_end: float = 0.3,
    padding: str = "reset",
) -> NDArray[Any]:
    """Return [rows, columns, k, *frame] of episodes that end at random and begin anew in the next row."""
    rng = np.random.default_rng(seed)
    stackers = [Stacker(k, frame, dtype, padding, (seed, b)) for b in range(columns)]
    found = [[one.reset() for one in stackers]]
    for _ in range(rows - 1):
        found.append([one.reset() if rng.random() < p_end else one.step() for one in stackers])
    return np.array(found)


def filled(
    shape: tuple[int, ...] = (4, 3, 2), dtype: Any = np.uint8, **options: Any
) -> tuple[LazyFramesArray, Any]:
    """Return an array, and the stacks of its rows 0 to T that were written into it."""
    array = LazyFramesArray(shape, dtype, **options)
    stacks = stacks_of(shape[0] + 1, shape[1], shape[2], shape[3:], dtype)
    for t, row in enumerate(stacks[: shape[0] + array.padding]):
        array[t] = row
    return array, stacks
