"""The weights of an agent, on their way to a copy of it in another process.

    trained agent   publish()  ------ SharedParameters, version -------->  load()   agent that samples

What an agent's `models()` names are its weights: of `state()` these entries travel, and nothing else, since
random and recurrent state belong to the agent that samples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parllel.agents import NEVER, Agent, SharedParameters
from parllel.buffers import buffer_leaves, buffer_map
from parllel.types import State, Tree


class Leaf(NamedTuple):
    """Where a leaf of the weights is, and what it looks like."""

    path: str
    shape: tuple[int, ...]
    dtype: str


class Published(NamedTuple):
    """Weights in shared memory; it crosses a pipe, both sides then hold the same memory.

    Attributes:
        shared: the arrays and their version.
        layout: of each.
        first: what `shared` calls the version that is 0 here.
    """

    shared: SharedParameters
    layout: list[Leaf]
    first: int

    @classmethod
    def of(cls, agent: Agent) -> Published:
        """Publish the present weights of an agent as version 0.

        Raises:
            ValueError: if the agent does not say what its weights are, or they are no arrays and numbers.
        """
        try:
            weights = weights_of(agent)
        except NotImplementedError as error:
            raise ValueError(f"agent: {error}") from None
        layout = _layout_of(agent, weights)
        shared = SharedParameters(_arrays_of(weights))
        return cls(shared, layout, shared.version)

    @property
    def version(self) -> int:
        """How many times new weights were published."""
        return self.shared.version - self.first

    def publish(self, agent: Agent) -> int:
        """Copy the weights if they have changed; return their version.

        Nobody may be loading meanwhile.

        Raises:
            ValueError: if there are more or fewer of them than at first, or of other shapes or kinds.
        """
        weights = weights_of(agent)
        self.check(agent, weights, "that it had at first")
        self.shared.publish(_arrays_of(weights))
        return self.version

    def check(self, agent: Agent, weights: Tree, which: str) -> None:
        """Raise ValueError unless the weights of an agent can be copied from or to what is published."""
        layout = _layout_of(agent, weights)
        pairs = zip(layout, self.layout, strict=False)
        if len(layout) != len(self.layout) or not all(_fits(one, first) for one, first in pairs):
            expected, got = ([tuple(leaf) for leaf in leaves] for leaves in (self.layout, layout))
            raise ValueError(
                f"{type(agent).__name__}: expected the weights {which}, {expected}, got {got}"
            )


class WeightsReader:
    """Load published weights into an agent.

    Args:
        agent: of the same kind as the one that publishes.
        published: where they are.

    Raises:
        ValueError: if the two agents have different weights.
    """

    def __init__(self, agent: Agent, published: Published) -> None:
        weights = weights_of(agent)
        published.check(agent, weights, "of the agent that is trained")
        self._agent = agent
        self._published = published
        self._seen = NEVER
        self._kinds: Tree = buffer_map(type, weights)
        self._weights: Tree = buffer_map(np.array, weights)  # private memory to load into
        self._arrays = _arrays_of(self._weights)

    def load(self) -> int:
        """Take the weights if they are new; return their version."""
        seen, self._seen = self._seen, self._published.shared.load(self._arrays, self._seen)
        if self._seen != seen:
            weights = buffer_map(_as_it_was, self._weights, self._kinds)
            self._agent.load_state({**self._agent.state(), **weights})
        return self._seen - self._published.first


def weights_of(agent: Agent) -> State:
    """Return those entries of the agent's state that are named as its models.

    Raises:
        ValueError: if there are no such entries.
        NotImplementedError: if the agent does not say which they are.
    """
    names = agent.models()
    if not names:
        return {}
    state = agent.state()
    missing = [name for name in names if name not in state]
    if missing:
        raise ValueError(
            f"{type(agent).__name__}: expected state() to have an entry for each of models(), "
            f"{sorted(names)}; {missing} are missing"
        )
    return {name: state[name] for name in names}


def rest_of(agent: Agent) -> State:
    """Return what `weights_of` leaves out of the agent's state: all, if it does not say what it learns."""
    try:
        names = set(agent.models())
    except NotImplementedError:
        names = set()
    return {name: part for name, part in agent.state().items() if name not in names}


def _arrays_of(weights: Tree) -> list[NDArray[Any]]:
    return [np.asarray(leaf) for _, leaf in buffer_leaves(weights)]


def _layout_of(agent: Agent, weights: Tree) -> list[Leaf]:
    leaves = []
    for path, leaf in buffer_leaves(weights):
        array = np.asarray(leaf)
        if array.dtype.kind not in "biufc":
            raise ValueError(
                f"{type(agent).__name__}: {path}: expected arrays and numbers, got {leaf!r}; what its "
                "models() name travels through shared memory"
            )
        leaves.append(Leaf(path, array.shape, array.dtype.str))
    return leaves


def _fits(leaf: Leaf, first: Leaf) -> bool:
    same_place = (leaf.path, leaf.shape) == (first.path, first.shape)
    return same_place and np.can_cast(leaf.dtype, first.dtype, "same_kind")


def _as_it_was(array: NDArray[Any], kind: type) -> Any:
    """Return a number where the agent's own state has one."""
    return array.item() if issubclass(kind, (bool, int, float, complex)) else array
