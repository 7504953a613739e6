"""Normalise advantages to zero mean and unit variance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.samples import Samples
from parllel.transforms.arguments import check_finite_positive
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.running_statistics import RunningMeanStd
from parllel.transforms.transform import BatchTransform, Gather, body_of, optional_body_of


class NormalizeAdvantage(BatchTransform):
    """Normalises advantages over the batch, by default in place.

    Working in place is safe because advantages are recomputed for each batch. If there is a field
    `env.valid`, the mean and standard deviation are computed from the valid entries, and all other
    entries become 0.

    Args:
        epsilon: added to the standard deviation.
        source: path of the advantage, [T, B, ...].
        target: path of the field to write, float32 of the same shape.

    Raises:
        ValueError: if epsilon is not above zero.
    """

    def __init__(
        self,
        epsilon: float = 1e-8,
        source: str = "agent.advantage",
        target: str = "agent.advantage",
    ) -> None:
        self._epsilon = check_finite_positive("NormalizeAdvantage", "epsilon", epsilon)
        self._source, self._target = source, target
        self.reads = (source,)
        self._gather: Gather | None = None
        self._views = BatchMemo(self._views_of)

    def share_statistics(self, gather: Gather) -> None:
        """Compute mean and standard deviation from the advantages of all learners."""
        self._gather = gather

    def fields(self, samples: Samples) -> Mapping[str, Field]:
        """Declare the target if it differs from the source."""
        # Declared by the transform that computes the advantage; a second writer of a path is refused.
        if self._target == self._source:
            return {}
        shape = body_of(samples, self._source).shape[2:]
        return {self._target: Field(np.zeros(shape, np.float32))}

    def _views_of(
        self, samples: Samples
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_] | None]:
        valid = optional_body_of(samples, "env.valid")
        return body_of(samples, self._source), body_of(samples, self._target), valid

    def transform_batch(self, samples: Samples) -> None:
        """Normalise the whole batch. A batch without valid entries becomes 0."""
        advantage, out, valid = self._views.of(samples)
        chosen = advantage if valid is None else advantage[valid]
        # numpy warns of the mean of nothing, and a warning may be an error.
        mean, std = (0.0, 1.0) if not chosen.size else _mean_and_std(chosen)
        if self._gather is not None:
            mean, std = _merged(self._gather(np.array([mean, std, chosen.size])))
        # In float64: a large mean rounded to float32 would leave an offset.
        np.subtract(advantage, mean, out=out, dtype=np.float64, casting="same_kind")
        np.multiply(out, 1.0 / (std + self._epsilon), out=out, casting="same_kind")
        if valid is not None:
            # Last, as these cells may hold NaN, which no arithmetic removes.
            out[~valid] = 0.0


def _mean_and_std(values: NDArray[Any]) -> tuple[float, float]:
    # In float64: sums of float32 lose digits in a large batch.
    mean = values.mean(dtype=np.float64)
    deviation = np.subtract(values, mean, dtype=np.float64)
    return float(mean), float(np.sqrt(np.square(deviation, out=deviation).mean()))


def _merged(parts: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """Return mean and standard deviation of all parts, given mean, standard deviation and size of each."""
    merged = RunningMeanStd(())
    for mean, std, size in parts:
        merged.merge(np.asarray(mean), np.asarray(std * std), int(size))
    return float(merged.mean), float(merged.std)
