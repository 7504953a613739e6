"""The interfaces of transforms, and helpers to find their fields and to name them in errors.

A transform reads fields of the samples and writes to fields of its own, so that raw data stay as the
environments wrote them. A path names a field from the root of the samples, as in `"env.reward"`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.batches import follows_batches
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.errors import add_note
from parllel.transforms.batch_memo import BatchMemo
from parllel.types import State, Tree

# Called by all learners with arrays of the same shape; returns the arrays of all, in the order of learners.
Gather: TypeAlias = Callable[[NDArray[Any]], list[NDArray[Any]]]


class Transform:
    """Base class of StepTransform and BatchTransform.

    Attributes:
        reads: paths of the fields, or trees of fields, that the transform reads. Samplers check that these
            exist and that no later transform writes them. None, the default, checks nothing.
        skips_invalid: whether the transform uses only steps with `env.valid`, if there is this field. Where
            it is False, samplers refuse the transform with cages that restart dead processes.
        column_wise: whether each column is computed from this column only, so that several learners may
            compute their columns separately.
    """

    reads: Sequence[str] | None = None
    skips_invalid = True
    column_wise = False

    def __repr__(self) -> str:
        return type(self).__name__

    def fields(self, samples: Samples) -> Mapping[str, Field | Tree]:
        """Return the fields that this transform writes, by path: Fields, or trees of Fields.

        samples: the fields that exist so far, from which shapes and dtypes can be taken; read only.

        This is called when the buffer is allocated, and again by samplers, then with all fields in
        `samples`, to compare. Both calls must return the same.
        """
        return {}

    def bind(self, samples: Samples) -> None:
        """Make views of the fields. Called before sampling, and whenever the samples' memory changes.

        The default binds all attributes that are BatchMemos.
        """
        for memo in self._memos():
            memo.bind(samples)

    def use_batch(self, samples: Samples, number: int) -> None:
        """Switch to batch `number` of a buffer with several. The arrays already show that batch.

        Called before each batch of such a buffer. The default switches all attributes that are
        BatchMemos, which cache the views of each batch. If a subclass overrides `bind` but not this
        method, `bind` is called instead, so its views are always up to date.
        """
        if not follows_batches(self):
            self.bind(samples)
            return
        for memo in self._memos():
            memo.use_batch(samples, number)

    def release(self) -> None:
        """Forget the bound samples, but keep the state.

        Called for transforms that are used without a batch from now on, such as those of a trained
        policy. The default clears all attributes that are BatchMemos; override it in a transform
        that keeps other views.
        """
        for memo in self._memos():
            memo.forget()

    def _memos(self) -> list[BatchMemo[Any]]:
        return [value for value in vars(self).values() if isinstance(value, BatchMemo)]

    @property
    def stats(self) -> dict[str, Any]:
        """Numbers and arrays to log; empty for a transform without state."""
        return {}

    def forget(self, columns: NDArray[np.intp]) -> None:
        """Drop data carried over from the last batch in `columns` [n] int, where new episodes begin.

        Called before the first batch after loading a checkpoint without the states of these
        environments, and when an environment is restarted between two rows.
        """

    def share_statistics(self, gather: Gather) -> None:
        """Compute statistics from the batches of all learners from now on. Called once, before sampling.

        Override this in a transform whose results depend on several columns. It must call `gather` equally
        often in all learners.

        Raises:
            TypeError: by default, unless the transform is `column_wise`.
        """
        if not self.column_wise:
            raise TypeError(
                f"{type(self).__name__} cannot be used with several learners, because its results may depend "
                "on the columns of other learners. Set column_wise=True if they do not, or override "
                "share_statistics"
            )

    def state(self) -> State:
        """Return arrays and JSON values for a checkpoint."""
        return {}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""


class StepTransform(Transform, ABC):
    """Base class of transforms that process one row at a time, before the agent sees it.

    Statistics stay constant within a batch: `transform_step` and `transform_final` read them, and
    `end_batch` updates them.

    Attributes:
        shared: names of the entries of `state()` that are sent from the trainer's transform to its
            copies in rollout workers, just as weights are sent to copies of the agent. These should
            be statistics, but no data that belong to columns. The entries are arrays and numbers
            whose shapes do not change after `bind`. None, the default, means all entries.
    """

    shared: Sequence[str] | None = None

    @abstractmethod
    def transform_step(self, samples: Samples, t: int, columns: slice) -> None:
        """Transform row `t` of `columns`; row T is the observation after the batch."""

    def transform_final(self, observation: Tree) -> Tree:
        """Return final observations `[N, ...]` of ended episodes as the agent should see them.

        The agent receives the result to compute the values of truncated episodes, and to act in
        evaluations. Implement this in transforms that write `agent.observation`, or a field that
        such a transform reads. Samplers do not call it for any other transform.
        """
        return observation

    def end_batch(self, samples: Samples) -> None:
        """Update statistics from the finished batch. If `env.valid` exists, use only valid entries.

        This is not called in evaluations, nor in rollout workers, which receive the trainer's
        statistics.
        """


class BatchTransform(Transform, ABC):
    """Base class of transforms that process the whole batch after sampling."""

    @abstractmethod
    def transform_batch(self, samples: Samples) -> None:
        """Transform rows 0 to T - 1. `np.asarray(samples.env.reward)` is a view [T, B]."""


def body_of(samples: Tree, path: str) -> np.ndarray[Any, Any]:
    """Return a numpy view [T, B, ...] of the field at `path`, without its padding rows.

    Raises:
        ValueError: if there is no such field, or the field is a tree.
    """
    field = field_at(samples, path)
    # A tree is a tuple: numpy would try to stack its arrays instead of refusing it.
    names = getattr(field, "_fields", None)
    if names is not None:
        raise ValueError(f"{path}: expected one array, got a tree of {list(names)}")
    return np.asarray(field)


def optional_body_of(samples: Tree, path: str) -> np.ndarray[Any, Any] | None:
    """Like `body_of`, but return None if the last part of `path` is missing or None."""
    parent, _, name = path.rpartition(".")
    node = field_at(samples, parent) if parent else samples
    field = getattr(node, name) if name in getattr(node, "_fields", ()) else None
    return None if field is None else np.asarray(field)


def row_after(samples: Tree, path: str) -> np.ndarray[Any, Any]:
    """Return a numpy view [B, ...] of a field's row T, the first padding row after the batch.

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

    where: the method, and any further description of the place.
    """
    try:
        yield
    except Exception as error:
        note_transform(error, transform, where)
        raise


def note_transform(error: Exception, transform: Transform, where: str) -> None:
    """Add the same note as `naming`, for use where entering a context for each row would be too slow."""
    add_note(error, f"in {type(transform).__name__}.{where}")


def end_batch(transforms: Iterable[StepTransform], samples: Samples) -> None:
    """Update the transforms' statistics from a finished batch, in order. Errors name the transform."""
    for transform in transforms:
        try:
            transform.end_batch(samples)
        except Exception as error:
            note_transform(error, transform, "end_batch")
            raise


def transform_batch(transforms: Iterable[BatchTransform], samples: Samples) -> None:
    """Apply the transforms to a finished batch, in order. Errors name the transform."""
    for transform in transforms:
        try:
            transform.transform_batch(samples)
        except Exception as error:
            note_transform(error, transform, "transform_batch")
            raise
