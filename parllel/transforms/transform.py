"""The interfaces of transforms, and helpers to find their fields and to name them in errors.

A transform reads fields of the samples and writes to fields of its own, so that raw data stay as the
environments wrote them. A path names a field from the root of the samples, as in `"env.reward"`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.batches import follows_batches
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.errors import add_note
from parllel.transforms.batch_memo import BatchMemo
from parllel.types import State, Tree


class Transform:
    """The common part of StepTransform and BatchTransform.

    Attributes:
        reads: paths of the fields, or trees of fields, that the transform reads. Samplers check that these
            exist and that no later transform writes them. None, the default, checks nothing.
    """

    reads: Sequence[str] | None = None

    def fields(self, samples: Samples) -> Mapping[str, Field | Tree]:
        """Return the fields that this transform writes, by path: Fields, or trees of Fields.

        samples: the fields that exist so far, to take shapes and dtypes from; read only.

        Called when the buffer is allocated, and by samplers to compare, then with all fields in `samples`:
        both calls must return the same.
        """
        return {}

    def bind(self, samples: Samples) -> None:
        """Make views of the fields. Called before sampling, and when the memory of the samples changes.

        The default makes those of attributes that are BatchMemos.
        """
        for memo in self._memos():
            memo.bind(samples)

    def use_batch(self, samples: Samples, number: int) -> None:
        """Switch to batch `number` of a buffer that holds several; the arrays show that batch already.

        Called before each batch of such a buffer. The default switches attributes that are BatchMemos, which
        keep the views of each batch. A subclass that overrides `bind` but not this method gets a call of
        `bind`, which suits all views that it makes.
        """
        if not follows_batches(self):
            self.bind(samples)
            return
        for memo in self._memos():
            memo.use_batch(samples, number)

    def release(self) -> None:
        """Forget the samples that it was bound to, and keep its state.

        For what is used without a batch from here on, as a trained policy is. The default forgets the views
        in attributes that are BatchMemos; override it in a transform that keeps others.
        """
        for memo in self._memos():
            memo.forget()

    def _memos(self) -> list[BatchMemo[Any]]:
        return [value for value in vars(self).values() if isinstance(value, BatchMemo)]

    @property
    def stats(self) -> dict[str, Any]:
        """Numbers and arrays for the log; empty for a transform without state."""
        return {}

    def forget(self, columns: NDArray[np.intp]) -> None:
        """Drop what was carried over from the last batch in `columns` [n] int: new episodes begin there.

        Called before the first batch after loading a checkpoint that has no states of these environments,
        and where an environment is started again between two rows.
        """

    def state(self) -> State:
        """Return arrays and JSON values for a checkpoint."""
        return {}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""


class StepTransform(Transform, ABC):
    """Transform one row at a time, before the agent sees it.

    Statistics stay constant within a batch: `transform_step` and `transform_final` read them, and
    `end_batch` updates them.

    Attributes:
        shared: names of the entries of `state()` that copies in rollout workers take over from the trainer's
            transform, as copies of the agent take over its weights: statistics, but nothing that belongs to
            columns. They are arrays and numbers, whose shapes stay as they are after `bind`. None, the
            default, names all.
    """

    shared: Sequence[str] | None = None

    @abstractmethod
    def transform_step(self, samples: Samples, t: int, columns: slice) -> None:
        """Transform row `t` of `columns`; row T is the observation after the batch."""

    def transform_final(self, observation: Tree) -> Tree:
        """Return final observations `[N, ...]` of ended episodes as the agent should see them.

        The agent evaluates truncated episodes, and acts in evaluations, on what this returns. Implement it
        in transforms that write `agent.observation`, or a field that such a transform reads; samplers do not
        call it for others.
        """
        return observation

    def end_batch(self, samples: Samples) -> None:
        """Update statistics from the finished batch, only where `env.valid` is true if that field exists.

        Not called in evaluations, nor in rollout workers, which are given the statistics of the trainer.
        """


class BatchTransform(Transform, ABC):
    """Transform the whole batch after sampling."""

    @abstractmethod
    def transform_batch(self, samples: Samples) -> None:
        """Transform rows 0 to T - 1. `np.asarray(samples.env.reward)` is a view [T, B]."""


def body_of(samples: Tree, path: str) -> np.ndarray[Any, Any]:
    """Return a numpy view [T, B, ...] of the field at `path`, without its padding rows.

    Raises:
        ValueError: if there is no such field, or it is a tree.
    """
    field = field_at(samples, path)
    # A tree is a tuple: numpy would try to stack its arrays instead of refusing it.
    names = getattr(field, "_fields", None)
    if names is not None:
        raise ValueError(f"{path}: expected one array, got a tree of {list(names)}")
    return np.asarray(field)


def optional_body_of(samples: Tree, path: str) -> np.ndarray[Any, Any] | None:
    """Return what `body_of` returns, or None if there is no field of the last name, or it is None."""
    parent, _, name = path.rpartition(".")
    node = field_at(samples, parent) if parent else samples
    field = getattr(node, name) if name in getattr(node, "_fields", ()) else None
    return None if field is None else np.asarray(field)


def row_after(samples: Tree, path: str) -> np.ndarray[Any, Any]:
    """Return a numpy view [B, ...] of row T, the first padding row after the batch, of a field.

    Raises:
        ValueError: if the field has no padding.
    """
    field = field_at(samples, path)
    if not getattr(field, "padding", 0):
        raise ValueError(
            f"{path}: expected an array with padding, because row T is read, got {field!r}"
        )
    return np.asarray(field[field.last + 1])


@contextmanager
def naming(transform: Transform, where: str) -> Iterator[None]:
    """Add a note with the transform's name to errors raised in this context.

    where: the method, and what else tells the place.
    """
    try:
        yield
    except Exception as error:
        note_transform(error, transform, where)
        raise


def note_transform(error: Exception, transform: Transform, where: str) -> None:
    """Add the note of `naming`, where entering a context for each row would cost too much."""
    add_note(error, f"in {type(transform).__name__}.{where}")


def end_batch(transforms: Iterable[StepTransform], samples: Samples) -> None:
    """Let transforms update their statistics from a finished batch, in order; errors name the transform."""
    for transform in transforms:
        try:
            transform.end_batch(samples)
        except Exception as error:
            note_transform(error, transform, "end_batch")
            raise


def transform_batch(transforms: Iterable[BatchTransform], samples: Samples) -> None:
    """Transform a finished batch, in order; errors name the transform."""
    for transform in transforms:
        try:
            transform.transform_batch(samples)
        except Exception as error:
            note_transform(error, transform, "transform_batch")
            raise
