"""What every transform has in common.

A transform reads fields of the samples and writes into fields of its own, so raw data stay as the
environments wrote them. Paths name fields from the root of the samples: `"env.reward"`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers import Field, Samples, field_at
from parllel.types import State, Tree


class Transform:
    """Shared part of step and batch transforms.

    Attributes:
        reads: paths of the fields that it reads, or of trees of them, for samplers to check that they are
            there and that no later transform writes them; None, the default, checks nothing.
    """

    reads: Sequence[str] | None = None

    def fields(self, samples: Samples) -> Mapping[str, Field | Tree]:
        """Return the fields that this transform writes, by path: Fields, or trees of them.

        `samples` holds what exists so far (examples are read from it, nothing is written).
        The build function allocates what is returned before sampling starts. Samplers ask again, with
        all fields there, to compare: the answer has to be the same.
        """
        return {}

    def bind(self, samples: Samples) -> None:
        """Make views of the fields once. Called before sampling, and when buffers change."""

    @property
    def stats(self) -> dict[str, Any]:
        """Numbers and arrays worth logging; empty for a transform without state."""
        return {}

    def forget(self, columns: NDArray[np.intp]) -> None:
        """Let go of what is carried of the episodes in progress in `columns`: others begin there.

        Called before a batch, where a run goes on whose environments could not save their states.
        """

    def state(self) -> State:
        """Return arrays and JSON values for a checkpoint."""
        return {}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""


class StepTransform(Transform, ABC):
    """Works on one row while a batch is sampled.

    Statistics move between batches: `transform_step` and `transform_final` only read them,
    `end_batch` updates them.
    """

    @abstractmethod
    def transform_step(self, samples: Samples, t: int, columns: slice) -> None:
        """Transform row `t` of `columns`; row T is the observation after the batch."""

    def transform_final(self, observation: Tree) -> Tree:
        """Return final observations `[N, ...]` of ended episodes as the agent should see them.

        Values of truncated episodes and evaluations come from what it returns. To be implemented by
        transforms that write `agent.observation`, or a field that one of these reads; others aren't asked.
        """
        return observation

    def end_batch(self, samples: Samples) -> None:
        """Update statistics from the finished batch, where `env.valid` is true if there is such a field.

        Not called while evaluating.
        """


class BatchTransform(Transform, ABC):
    """Works on the whole batch after sampling."""

    @abstractmethod
    def transform_batch(self, samples: Samples) -> None:
        """Transform rows 0 to T - 1; views come from `np.asarray(samples.env.reward)` [T, B]."""


def body_of(samples: Tree, path: str) -> np.ndarray[Any, Any]:
    """Return the numpy view [T, B, ...] of the body of the field at `path`.

    Raises:
        ValueError: if there is no such field, or it is a tree.
    """
    field = field_at(samples, path)
    names = getattr(field, "_fields", None)
    if names is not None:
        raise ValueError(f"{path}: expected one array, got a tree of {list(names)}")
    return np.asarray(field)


def optional_body_of(samples: Tree, path: str) -> np.ndarray[Any, Any] | None:
    """Return the body as `body_of` does, or None if the last name is missing or its field is None."""
    parent, _, name = path.rpartition(".")
    node = field_at(samples, parent) if parent else samples
    field = getattr(node, name) if name in getattr(node, "_fields", ()) else None
    return None if field is None else np.asarray(field)


def row_after(samples: Tree, path: str) -> np.ndarray[Any, Any]:
    """Return the numpy view [B, ...] of row T, the first padding row, of the field at `path`.

    Raises:
        ValueError: if the field has no padding.
    """
    field = field_at(samples, path)
    if not getattr(field, "padding", 0):
        raise ValueError(
            f"{path}: expected an array with padding, whose row T is read, got {field!r}"
        )
    return np.asarray(field[field.last + 1])
