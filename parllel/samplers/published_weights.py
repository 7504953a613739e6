"""Transfer of an agent's weights to its copy in another process, through shared memory.

    training process                                             sampling process
    PublishedWeights.publish -- arrays, then the version ----->  WeightsReader.load reads the version; if it
                                                                 is new, copies the arrays to its agent
    AsynchronousSampler <--- BEGUN, over the pipe -------------  the weights have been read
    PublishedWeights.publish    only between BEGUN and the next request of a batch, as there is no lock

Weights are those returned by `parllel.agents.weights_of`.
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

# Maximum number of leaves that an error lists: a model may have hundreds.
_MAX_NAMED = 3


class WeightLeaf(NamedTuple):
    """Path, shape and dtype (numpy's `dtype.str`) of one array of the weights."""

    path: str
    shape: tuple[int, ...]
    dtype: str


class PublishedWeights(NamedTuple):
    """Weights in shared memory. A pickled copy refers to the same memory.

    Attributes:
        shared: the arrays and their version.
        layout: path, shape and dtype of each array.
        first: the initial version of `shared`, which counts as version 0.
    """

    shared: SharedParameters
    layout: list[WeightLeaf]
    first: int

    @classmethod
    def of(cls, agent: Agent) -> PublishedWeights:
        """Publish the current weights of an agent as version 0.

        Raises:
            ValueError: if the agent does not implement `models()`, its weights are not arrays and numbers, or
                `models()` is empty although its state has arrays of real numbers.
        """
        try:
            weights = weights_of(agent)
        except NotImplementedError as error:
            raise ValueError(f"agent: {error}") from None
        if not weights:
            _check_nothing_is_learned(agent)
        layout = layout_of(type(agent).__name__, weights)
        shared = SharedParameters(_arrays_of(weights))
        # SharedParameters counts the initial values as a version, unless all are zero.
        return cls(shared, layout, shared.version)

    @property
    def version(self) -> int:
        """Number of times that new weights were published."""
        return self.shared.version - self.first

    def publish(self, agent: Agent) -> int:
        """Copy the weights if they have changed; return their version.

        Must not be called while a reader is loading, which would read a mixture of two versions.

        Raises:
            ValueError: if the number, shapes or kinds of the weights differ from version 0.
        """
        weights = weights_of(agent)
        # Before anything is written: the shared arrays must never hold half an update.
        self.check(agent, weights, "that it had at first")
        # Arrays first, then the version, so that a reader never takes old arrays for the new version.
        self.shared.publish(_arrays_of(weights))
        return self.version

    def check(self, agent: Agent, weights: Tree, which: str) -> None:
        """Check an agent's weights against the published layout. Raises ValueError.

        which: description of the expected weights, for the message.
        """
        check_layout(type(agent).__name__, self.layout, weights, f"the weights {which}")


class WeightsReader:
    """Loads published weights into an agent.

    Args:
        agent: the agent to load weights into, of the same class as the publishing agent.
        published: the weights received from the other process.

    Raises:
        ValueError: if the two agents have different weights.
    """

    def __init__(self, agent: Agent, published: PublishedWeights) -> None:
        weights = weights_of(agent)
        # Checked here, so that building the sampler fails rather than its first batch.
        published.check(agent, weights, "of the agent that is trained")
        self._agent = agent
        self._published = published
        self._seen = (
            NEVER  # the first call loads version 0, as the copy has different initial weights
        )
        self._kinds: Tree = buffer_map(type, weights)
        # Private memory: an agent may keep the arrays passed to `load_state`, which must not change while it
        # samples.
        self._weights: Tree = buffer_map(np.array, weights)
        # Views of `_weights`, so that copying to the list fills the tree.
        self._arrays = _arrays_of(self._weights)

    def load(self) -> int:
        """Load the weights into the agent if they are new; return their version."""
        # Decided by the version: an agent's `load_state` is far more expensive than reading one number.
        # If loading them into the agent fails, they count as seen all the same:
        # the process ends then.
        seen, self._seen = self._seen, self._published.shared.load(self._arrays, self._seen)
        if self._seen != seen:
            weights = buffer_map(_in_original_type, self._weights, self._kinds)
            load_weights(self._agent, weights)
        return self._seen - self._published.first


def check_layout(owner: str, layout: Sequence[WeightLeaf], weights: Tree, which: str) -> None:
    """Check weights, or other published arrays, against a layout. Raises ValueError.

    owner: class that owns the weights, for the message.
    which: description of the expected weights, for the message.
    """
    found = layout_of(owner, weights)
    # Not strict: a different number of arrays is reported by the message below.
    pairs = zip(found, layout, strict=False)
    if len(found) != len(layout) or not all(_fits(one, first) for one, first in pairs):
        raise ValueError(
            f"{owner}: expected {which}, {_others(layout, found)}, got {_others(found, layout)}"
        )


def _others(leaves: Sequence[WeightLeaf], others: Sequence[WeightLeaf]) -> str:
    """Return the first leaves that are not among the others, or all if only the order differs."""
    own = [tuple(leaf) for leaf in leaves if leaf not in others] or [tuple(leaf) for leaf in leaves]
    rest = f" and {len(own) - _MAX_NAMED} more" if len(own) > _MAX_NAMED else ""
    return f"{own[:_MAX_NAMED]}{rest}"


def _arrays_of(weights: Tree) -> list[NDArray[Any]]:
    return [np.asarray(leaf) for _, leaf in buffer_leaves(weights)]


def layout_of(owner: str, weights: Tree) -> list[WeightLeaf]:
    """Return paths, shapes and dtypes of weights. Raises ValueError unless they are arrays and numbers.

    owner: class that owns the weights, for the message.
    """
    leaves = []
    for path, leaf in buffer_leaves(weights):
        array = np.asarray(leaf)
        # Refuses strings and objects: an object array holds addresses, meaningless in another process.
        if array.dtype.kind not in "biufc":
            raise ValueError(
                f"{owner}: {path}: expected arrays and numbers, got {leaf!r}; nothing "
                "else is copied to agents in other processes"
            )
        leaves.append(WeightLeaf(path, array.shape, array.dtype.str))
    return leaves


def _fits(leaf: WeightLeaf, first: WeightLeaf) -> bool:
    same_place = (leaf.path, leaf.shape) == (first.path, first.shape)
    # The same kind is enough, as copying casts: a float64 may follow a float32.
    return same_place and np.can_cast(leaf.dtype, first.dtype, "same_kind")


def _in_original_type(array: NDArray[Any], kind: type) -> Any:
    """Convert an array to a Python number if the agent's state has a number there."""
    return array.item() if issubclass(kind, (bool, int, float, complex)) else array


def _check_nothing_is_learned(agent: Agent) -> None:
    """Check that an agent without named weights has none. Raises ValueError."""
    # Real numbers in the state look like weights; random generators have only integers.
    found = [
        path
        for path, leaf in _leaves_of(agent.state())
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fc"
    ]
    if found:
        raise ValueError(
            f"agent: {type(agent).__name__}.models(): expected the names of its weights, got {{}}, but its "
            f"state() has real numbers in {', '.join(found[:_MAX_NAMED])}, which would never change where it "
            "samples; name them, or pass agent=None if nothing is learned"
        )


def _leaves_of(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a state by path."""
    if isinstance(state, (dict, list, tuple)):
        parts = state.items() if isinstance(state, dict) else enumerate(state)
        for name, part in parts:
            yield from _leaves_of(part, f"{path}.{name}" if path else str(name))
    else:
        yield path, state
