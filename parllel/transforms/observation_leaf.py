"""Normalise one leaf of an observation tree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.transforms.running_statistics import RunningMeanStd
from parllel.transforms.transform import row_after
from parllel.types import State


class LeafStatistics:
    """The statistics of one leaf, and the shift and scale computed from them.

    Attributes:
        statistics: float64 mean and variance, in the shape of the leaf.
        shift, scale: [features] float32. The normalised observation is (observation + shift) *
            scale.
        clip: largest magnitude written, float32.
    """

    def __init__(self, statistics: RunningMeanStd, clip: float, epsilon: float) -> None:
        self.statistics = statistics
        self.clip = np.float32(clip)
        self._epsilon = epsilon
        self.refresh()

    def refresh(self) -> None:
        """Compute shift and scale from the statistics."""
        statistics = self.statistics
        # Subtracting before scaling gives exactly 0 for an element that never changes.
        self.shift = (-statistics.mean).astype(np.float32).reshape(-1)
        scale = 1.0 / np.sqrt(statistics.var + self._epsilon)
        self.scale = np.asarray(scale).astype(np.float32).reshape(-1)

    def update(self, body: NDArray[Any], mask: NDArray[np.bool_] | None) -> None:
        """Add a batch [T, B, features] to the statistics. `mask` is [T * B] bool, or None to add all."""
        shape = self.statistics.shape
        self.statistics.update(body.reshape(-1, *shape), mask)
        self.refresh()

    def load(self, state: State) -> None:
        """Restore the state of the statistics."""
        self.statistics.load_state(state)
        self.refresh()

    def normalized(self, array: ArrayLike) -> NDArray[np.float32]:
        """Return normalised observations [N, *shape] in float32, equal to those of `LeafViews.write`."""
        source = np.asarray(array)
        if source.shape[1:] != self.statistics.shape:
            raise ValueError(
                f"{self.statistics.name}: expected shape [N, *{self.statistics.shape}], "
                f"got {source.shape}"
            )
        out = np.empty(source.shape, np.float32)
        flat = (len(source), self.shift.size)
        self.write_into(out.reshape(flat), source.reshape(flat))
        return out

    def write_into(self, out: NDArray[np.float32], source: NDArray[Any]) -> None:
        """Normalise `source` [n, features] of any real dtype into `out`."""
        # The operations of `normalize_row` in its order and precision: what the agent sees of a final
        # observation must not differ from what a step would show of it.
        np.add(source, self.shift, out=out, dtype=np.float32, casting="unsafe")
        np.multiply(out, self.scale, out=out)
        np.clip(out, -self.clip, self.clip, out=out)


class LeafViews:
    """Views of the source and target of one leaf: [T, B, features] and, for row T, [1, B, features]."""

    def __init__(self, leaf: LeafStatistics, samples: Samples, source: str, target: str) -> None:
        from parllel.transforms import compiled

        # Once, and not in `write`: an import statement costs something in each row.
        self._normalize_row = compiled.normalize_row
        self.leaf = leaf
        self.body, self._after = _body_and_row_after(samples, source)
        self._target, self._target_after = _body_and_row_after(samples, target)
        if self._target.shape != self.body.shape or self._target.dtype != np.float32:
            raise ValueError(
                f"NormalizeObservations: {target}: expected float32 {self.body.shape}, "
                f"got {self._target.dtype} {self._target.shape}"
            )
        self._T, self._B = self.body.shape[:2]

    def write(self, t: int, columns: slice) -> None:
        """Normalise cells [t, columns], where t is 0 to T. Allocates no memory for float32 observations."""
        if not 0 <= t <= self._T:
            raise IndexError(f"{self.leaf.statistics.name}: no row {t} in a batch of T={self._T}")
        start, stop, _ = columns.indices(self._B)
        source, target = self.body, self._target
        if t == self._T:
            source, target, t = self._after, self._target_after, 0
        leaf = self.leaf
        if source.dtype == np.float32:
            self._normalize_row(source, target, t, start, stop, leaf.shift, leaf.scale, leaf.clip)
        else:
            leaf.write_into(target[t, start:stop], source[t, start:stop])


def _body_and_row_after(samples: Samples, path: str) -> tuple[NDArray[Any], NDArray[Any]]:
    field = field_at(samples, path)
    if isinstance(field, LazyFramesArray):
        raise ValueError(
            f"NormalizeObservations: {path}: expected an array whose rows can be viewed without a "
            "copy, got a LazyFramesArray, which copies its stacks when they are read; allocate it "
            "without frames"
        )
    body = np.asarray(field)
    after = row_after(samples, path)
    return _with_flat_features(body, path), _with_flat_features(after[np.newaxis], path)


def _with_flat_features(array: NDArray[Any], path: str) -> NDArray[Any]:
    flat = array.reshape(*array.shape[:2], -1)
    # `reshape` copies if it cannot make a view, and what is written to a copy would be lost.
    if not np.shares_memory(flat, array):
        raise ValueError(
            f"{path}: expected features that are contiguous in memory, got strides "
            f"{array.strides} for shape {array.shape}"
        )
    return flat
