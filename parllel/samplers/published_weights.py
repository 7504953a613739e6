"""Pass the weights of an agent to its copy in another process, through shared memory.

    process that trains                                          process that samples
    Published.publish -- writes arrays, then the version ----->  WeightsReader.load reads the version; where
                                                                 it is new, copies the arrays to its agent
    AsynchronousSampler <--- BEGUN, over the pipe -------------  the weights have been read
    Published.publish    only between BEGUN and the next request of a batch: nothing locks the arrays

Weights are what `parllel.agents.weights_of` returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parllel.agents.agent import Agent
from parllel.agents.shared_parameters import NEVER, SharedParameters
from parllel.agents.weights import load_weights, weights_of
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.types import Tree

# Leaves that an error writes out: a model may have hundreds.
_MAX_NAMED = 3


class WeightLeaf(NamedTuple):
    """The path of one array among the weights, its shape, and its dtype as numpy's `dtype.str`."""

    path: str
    shape: tuple[int, ...]
    dtype: str


class PublishedWeights(NamedTuple):
    """Weights in shared memory. Sent over a pipe, it gives both processes the same memory.

    Attributes:
        shared: the arrays and their version.
        layout: path, shape and dtype of each array.
        first: the version of `shared` when it was made, which counts as version 0.
    """

    shared: SharedParameters
    layout: list[WeightLeaf]
    first: int

    @classmethod
    def of(cls, agent: Agent) -> PublishedWeights:
        """Publish the present weights of an agent as version 0.

        Raises:
            ValueError: if the agent does not implement `models()`, its weights are not arrays and numbers, or
                it names none although its state has arrays of real numbers.
        """
        try:
            weights = weights_of(agent)
        except NotImplementedError as error:
            raise ValueError(f"agent: {error}") from None
        if not weights:
            _check_nothing_is_learned(agent)
        layout = layout_of(type(agent).__name__, weights)
        shared = SharedParameters(_arrays_of(weights))
        # SharedParameters counts the values of the examples as a version, unless all of them are zero.
        return cls(shared, layout, shared.version)

    @property
    def version(self) -> int:
        """How many times new weights were published."""
        return self.shared.version - self.first

    def publish(self, agent: Agent) -> int:
        """Copy the weights if they have changed; return their version.

        Must not run while a reader loads, which would then get some weights of either version.

        Raises:
            ValueError: if the number, shapes or kinds of the weights differ from those of version 0.
        """
        weights = weights_of(agent)
        # Before anything is written: the shared arrays must never hold half of an update.
        self.check(agent, weights, "that it had at first")
        self.shared.publish(_arrays_of(weights))
        return self.version

    def check(self, agent: Agent, weights: Tree, which: str) -> None:
        """Raise ValueError unless an agent's weights match the published layout.

        which: describes the expected weights in the message.
        """
        check_layout(type(agent).__name__, self.layout, weights, f"the weights {which}")


class WeightsReader:
    """Load published weights into an agent.

    Args:
        agent: the copy, of the same class as the agent that publishes.
        published: the weights, as received from the other process.

    Raises:
        ValueError: if the two agents have different weights.
    """

    def __init__(self, agent: Agent, published: PublishedWeights) -> None:
        weights = weights_of(agent)
        # Here, so that building the sampler fails, and not its first batch.
        published.check(agent, weights, "of the agent that is trained")
        self._agent = agent
        self._published = published
        self._seen = (
            NEVER  # so that the first call loads version 0: the copy began with weights of its own
        )
        self._kinds: Tree = buffer_map(type, weights)
        # Private memory: an agent that keeps the arrays given to `load_state` must not see them change
        # while it samples.
        self._weights: Tree = buffer_map(np.array, weights)
        # Views of `_weights`, so that the tree has what is copied to the list.
        self._arrays = _arrays_of(self._weights)

    def load(self) -> int:
        """Load the weights into the agent if they are new; return their version."""
        # By version: `load_state` of an agent costs far more than the look at one number.
        seen, self._seen = self._seen, self._published.shared.load(self._arrays, self._seen)
        if self._seen != seen:
            weights = buffer_map(_in_original_type, self._weights, self._kinds)
            load_weights(self._agent, weights)
        return self._seen - self._published.first


def check_layout(owner: str, layout: Sequence[WeightLeaf], weights: Tree, which: str) -> None:
    """Raise ValueError unless weights, or what else is published, fit a layout.

    owner: the class whose they are, for the message.
    which: describes in it what is expected.
    """
    found = layout_of(owner, weights)
    # Not strict: also if one has more arrays, the message below shows what differs.
    pairs = zip(found, layout, strict=False)
    if len(found) != len(layout) or not all(_fits(one, first) for one, first in pairs):
        raise ValueError(
            f"{owner}: expected {which}, {_others(layout, found)}, got {_others(found, layout)}"
        )


def _others(leaves: Sequence[WeightLeaf], others: Sequence[WeightLeaf]) -> str:
    """Return the first leaves that are not among the others; if all are, their order differs."""
    own = [tuple(leaf) for leaf in leaves if leaf not in others] or [tuple(leaf) for leaf in leaves]
    rest = f" and {len(own) - _MAX_NAMED} more" if len(own) > _MAX_NAMED else ""
    return f"{own[:_MAX_NAMED]}{rest}"


def _arrays_of(weights: Tree) -> list[NDArray[Any]]:
    return [np.asarray(leaf) for _, leaf in buffer_leaves(weights)]


def layout_of(owner: str, weights: Tree) -> list[WeightLeaf]:
    """Return paths, shapes and dtypes of weights; raise ValueError unless they are arrays and numbers.

    owner: the class whose they are, for the message.
    """
    leaves = []
    for path, leaf in buffer_leaves(weights):
        array = np.asarray(leaf)
        # Strings and objects: an array of objects holds addresses, which mean nothing in another process.
        if array.dtype.kind not in "biufc":
            raise ValueError(
                f"{owner}: {path}: expected arrays and numbers, got {leaf!r}; nothing "
                "else is copied to agents in other places"
            )
        leaves.append(WeightLeaf(path, array.shape, array.dtype.str))
    return leaves


def _fits(leaf: WeightLeaf, first: WeightLeaf) -> bool:
    same_place = (leaf.path, leaf.shape) == (first.path, first.shape)
    # Of one kind, not of one dtype: copying casts, so a float64 may follow a float32.
    return same_place and np.can_cast(leaf.dtype, first.dtype, "same_kind")


def _in_original_type(array: NDArray[Any], kind: type) -> Any:
    """Return a Python number instead of an array where the agent's own state has a number."""
    return array.item() if issubclass(kind, (bool, int, float, complex)) else array


def _check_nothing_is_learned(agent: Agent) -> None:
    """Raise ValueError for an agent that names no weights, and has what looks like some."""
    # Random generators have integers alone.
    found = [
        path
        for path, leaf in _leaves_of(agent.state())
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fc"
    ]
    if found:
        raise ValueError(
            f"agent: {type(agent).__name__}.models(): expected the names of what it learns, got {{}}, but "
            f"its state() has real numbers in {', '.join(found[:_MAX_NAMED])}, which would never change "
            "where it samples; name them, or give agent=None if nothing is learned"
        )


def _leaves_of(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a state by path."""
    if isinstance(state, (dict, list, tuple)):
        parts = state.items() if isinstance(state, dict) else enumerate(state)
        for name, part in parts:
            yield from _leaves_of(part, f"{path}.{name}" if path else str(name))
    else:
        yield path, state
