"""Clip rewards to a range."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parllel.buffers import Field, Samples
from parllel.transforms.transform import BatchTransform, body_of


class ClipRewards(BatchTransform):
    """Write rewards clipped to [low, high], as Mnih et al. (2015) do with -1 and 1.

    Args:
        low, high: the range; infinite for no limit on that side.
        source: path of the reward field, [T, B, ...].
        target: path of the field to write, float32 of the same shape.

    Raises:
        ValueError: if low is not below high.
    """

    def __init__(
        self,
        low: float,
        high: float,
        source: str = "env.reward",
        target: str = "env.clipped_reward",
    ) -> None:
        if not low < high:
            raise ValueError(f"ClipRewards: low: expected less than high={high!r}, got {low!r}")
        self._low, self._high = float(low), float(high)
        self._source, self._target = source, target
        self.reads = (source,)
        self._samples: Samples | None = None

    def fields(self, samples: Samples) -> Mapping[str, Field]:
        """Declare the clipped reward."""
        shape = body_of(samples, self._source).shape[2:]
        return {self._target: Field(np.zeros(shape, np.float32))}

    def bind(self, samples: Samples) -> None:
        """Make views of both fields."""
        self._reward = body_of(samples, self._source)
        self._clipped = body_of(samples, self._target)
        self._samples = samples

    def transform_batch(self, samples: Samples) -> None:
        """Write the clipped rewards of the whole batch."""
        if samples is not self._samples:
            self.bind(samples)
        np.clip(self._reward, self._low, self._high, out=self._clipped, casting="same_kind")
