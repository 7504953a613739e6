"""Compute the mean and variance of a stream of batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parllel.transforms.transform import Gather
from parllel.types import State


class RunningMeanStd:
    """Running mean and variance of all entries passed to `update`.

    Batches are merged by the parallel algorithm of Chan, Golub and LeVeque (1979, 1983) in float64, so the
    result does not depend on how the data are divided into batches.

    Args:
        shape: shape of one entry; each element has its own statistics.
        name: name for error messages.

    Attributes:
        mean, var: float64 arrays of `shape`; 0 and 1 before the first update. The variance is the
            population variance, which divides by n and not n - 1.
        count: number of entries so far.
        gather: with several learners, adds the batches of all to the statistics, which are then equal in all.
    """

    def __init__(self, shape: tuple[int, ...], name: str = "RunningMeanStd") -> None:
        self.shape = tuple(shape)
        self.name = name
        self.mean: NDArray[np.float64] = np.zeros(self.shape)
        self.var: NDArray[np.float64] = np.ones(self.shape)
        self.count = 0
        self.gather: Gather | None = None

    @property
    def std(self) -> NDArray[np.float64]:
        """Standard deviation, of `shape`."""
        return np.asarray(np.sqrt(self.var))

    def update(self, batch: ArrayLike, mask: ArrayLike | None = None) -> None:
        """Add the entries of a batch, or only those where `mask` is true.

        batch: `[N, *shape]`.  mask: [N] bool.

        Raises:
            ValueError: if a shape is wrong, or mean or variance are not finite. Nothing is changed
                then.
        """
        from parllel.transforms import compiled

        entries = np.asarray(batch)
        if entries.shape[1:] != self.shape or entries.ndim == 0:
            raise ValueError(
                f"{self.name}: batch: expected shape [N, *{self.shape}], got {entries.shape}"
            )
        n = len(entries)
        # The loop is compiled for these two; whatever else comes is converted to float64.
        dtype = np.float32 if entries.dtype == np.float32 else np.float64
        # In the form for which the loop is compiled: contiguous and writable, in one of two dtypes.
        flat = np.require(entries.reshape(n, self.mean.size), dtype, ["C", "A", "W"])
        mean, var = np.empty(self.mean.size), np.empty(self.mean.size)
        count = int(compiled.moments(flat, self._mask(mask, n), mean, var))
        # Before merging: a single NaN would stay in the statistics to the end of the run.
        if not (np.isfinite(mean).all() and np.isfinite(var).all()):
            raise ValueError(
                f"{self.name}: batch: expected finite numbers, got NaN, infinite or too large ones"
            )
        if self.gather is None:
            self.merge(mean.reshape(self.shape), var.reshape(self.shape), count)
            return
        # In the order of learners, so that the sums round alike in all of them.
        counts = np.full(mean.shape, count, np.float64)
        for others_mean, others_var, others_count in self.gather(np.stack([mean, var, counts])):
            shaped = others_mean.reshape(self.shape), others_var.reshape(self.shape)
            self.merge(*shaped, int(others_count[0]) if others_count.size else 0)

    def _mask(self, mask: ArrayLike | None, n: int) -> NDArray[np.bool_]:
        if mask is None:
            return np.empty(0, bool)
        entries = np.asarray(mask)
        if entries.shape != (n,) or entries.dtype != np.bool_:
            raise ValueError(
                f"{self.name}: mask: expected bool ({n},), got {entries.dtype} {entries.shape}"
            )
        return np.require(entries, bool, ["C", "A", "W"])

    def merge(self, mean: NDArray[np.float64], var: NDArray[np.float64], count: int) -> None:
        """Add `count` entries with this mean and population variance, each of `shape`."""
        if not count:
            return
        total = self.count + count
        if self.count == 0:  # exact, where the formula below would round
            self.mean, self.var, self.count = mean, var, total
            return
        # Chan et al.: the squares of both parts, and what the distance of their means adds.
        delta = mean - self.mean
        share = count / total
        squares = self.var * self.count + var * count + delta**2 * (self.count * share)
        self.mean = np.asarray(self.mean + delta * share)
        self.var = np.asarray(squares / total)
        self.count = total

    def state(self) -> State:
        """Return copies of mean, var and count."""
        return {"mean": self.mean.copy(), "var": self.var.copy(), "count": self.count}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if its shape differs.
        """
        mean, var = np.array(state["mean"], np.float64), np.array(state["var"], np.float64)
        if mean.shape != self.shape or var.shape != self.shape:
            raise ValueError(
                f"{self.name}: state: expected shape {self.shape}, got {mean.shape} and {var.shape}"
            )
        self.mean, self.var, self.count = mean, var, int(state["count"])
