"""Views that a transform works with, made once for each batch of its buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from parllel.buffers import ByBatch, Samples

V = TypeVar("V")

MOST_BATCHES = 2**12  # whose views are kept: some 10 of about 150 bytes each


class BatchMemo(Generic[V]):
    """Hold what a transform looks up in the samples, for the batch that is current.

        self._views = BatchMemo(self._views_of)       in __init__
        self._views.bind(samples)                     in bind
        self._views.use_batch(samples, number)        in use_batch
        views = self._views.of(samples)               where the transform works

    Args:
        make: returns the views of the batch that the samples show; it has no other effect that counts.
    """

    def __init__(self, make: Callable[[Samples], V]) -> None:
        self._make = make
        self._samples: Samples | None = None

    def bind(self, samples: Samples) -> V:
        """Make the views of the batch that the samples show, and forget all others; return them."""
        self._views = self._make(samples)
        self._by_batch: ByBatch[V] = ByBatch(lambda _: self._make(samples), MOST_BATCHES)
        self._samples = samples
        return self._views

    def use_batch(self, samples: Samples, number: int) -> None:
        """Go over to batch `number`, which the samples show already."""
        if samples is not self._samples:
            self.bind(samples)
        else:
            self._views = self._by_batch.at(number)

    def of(self, samples: Samples) -> V:
        """Return the views of the current batch; samples that are not known are bound first."""
        return self._views if samples is self._samples else self.bind(samples)

    def forget(self) -> None:
        """Forget all views, so that they are made anew."""
        self._samples = None
