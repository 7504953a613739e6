"""Keep the views that a transform works with, made once for each batch of its buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from parllel.arrays.block import Block
from parllel.buffers.batches import PerBatch, moving
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays

V = TypeVar("V")

MAX_BATCHES = 2**12  # most batches whose views are kept; each has some 10 views of about 150 bytes


class BatchMemo(Generic[V]):
    """Caches the views that a transform makes of the samples, for each batch.

        self._views = BatchMemo(self._views_of)       in __init__
        views = self._views.of(samples)               where the transform works

    A transform binds the BatchMemos in its attributes and switches them to other batches, unless it
    overrides `bind`.

    Args:
        make: function that returns the views of the batch that the samples show. It is called once
            per batch and its result is cached, so it must have no other purpose.
    """

    def __init__(self, make: Callable[[Samples], V]) -> None:
        self._make = make
        self._samples: Samples | None = None
        # Of the current batch, and of all that were current so far.
        self._views: V | None = None
        self._by_batch: PerBatch[V] | None = None
        # One of the arrays that move on, if any does: it tells whether the views are those of its batch.
        self._block: Block | None = None
        self._generation = 0

    def bind(self, samples: Samples) -> V:
        """Make the views of the batch that the samples show, and forget all others; return them."""
        views = self._views = self._make(samples)
        self._by_batch = PerBatch(lambda _: self._make(samples), MAX_BATCHES)
        self._samples = samples
        self._block = next((array.block for array in moving(buffer_arrays(samples))), None)
        self._note_batch()
        return views

    def use_batch(self, samples: Samples, number: int) -> None:
        """Switch to batch `number`, which the samples must show already."""
        # Compared by identity: other samples are other memory, even if their numbers are the same.
        if samples is not self._samples or self._by_batch is None:
            self.bind(samples)
        else:
            self._views = self._by_batch.at(number)
            self._note_batch()

    def of(self, samples: Samples) -> V:
        """Return the views of the batch that the samples currently show."""
        if samples is not self._samples:
            return self.bind(samples)
        # A memo that is no attribute of a transform, or of one with a `bind` of its own, is not told that the
        # batch changed.
        block = self._block
        if block is not None and block.generation != self._generation:
            self.use_batch(samples, block.window_number)
        assert self._views is not None
        return self._views

    def _note_batch(self) -> None:
        if self._block is not None:
            self._generation = self._block.generation

    def forget(self) -> None:
        """Forget all views and the samples. The views are made again on the next use."""
        self._samples = self._views = self._by_batch = self._block = None
