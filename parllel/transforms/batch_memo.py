"""Keep the views that a transform works with, made once for each batch of its buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from parllel.buffers import ByBatch, Samples

V = TypeVar("V")

MOST_BATCHES = 2**12  # most batches whose views are kept; each has some 10 views of about 150 bytes


class BatchMemo(Generic[V]):
    """Hold what a transform looks up in the samples, for the current batch.

        self._views = BatchMemo(self._views_of)       in __init__
        self._views.bind(samples)                     in bind
        self._views.use_batch(samples, number)        in use_batch
        views = self._views.of(samples)               where the transform works

    Args:
        make: returns the views of the batch that the samples show. It is called once per batch and kept, so
            it must not be needed for anything else.
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
        """Switch to batch `number`, which the samples must show already."""
        # Compared by identity: other samples are other memory, even if their numbers are the same.
        if samples is not self._samples:
            self.bind(samples)
        else:
            self._views = self._by_batch.at(number)

    def of(self, samples: Samples) -> V:
        """Return the views of the current batch; bind the samples first if they are new."""
        return self._views if samples is self._samples else self.bind(samples)

    def forget(self) -> None:
        """Forget all views; the next use makes them again."""
        self._samples = None
