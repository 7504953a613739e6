"""Clip rewards to a range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.samples import Samples
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.transform import BatchTransform, body_of


class ClipRewards(BatchTransform):
    """Writes rewards clipped to [low, high], as in Mnih et al. (2015), who clip to [-1, 1].

    Args:
        low, high: bounds of the range; an infinite bound sets no limit.
        source: path of the reward field, [T, B, ...].
        target: path of the field to write, float32 of the same shape.

    Raises:
        ValueError: if low is not below high.
    """

    column_wise = True

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
        self._views = BatchMemo(self._views_of)

    def fields(self, samples: Samples) -> Mapping[str, Field]:
        """Declare the clipped reward."""
        shape = body_of(samples, self._source).shape[2:]
        return {self._target: Field(np.zeros(shape, np.float32))}

    def _views_of(self, samples: Samples) -> tuple[NDArray[Any], NDArray[Any]]:
        return body_of(samples, self._source), body_of(samples, self._target)

    def transform_batch(self, samples: Samples) -> None:
        """Write the clipped rewards of the whole batch."""
        reward, clipped = self._views.of(samples)
        np.clip(reward, self._low, self._high, out=clipped, casting="same_kind")
