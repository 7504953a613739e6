"""The weights of an agent, on their way to a copy of it in another process.

    trained agent   publish()  ------ SharedParameters, version -------->  load()   agent that samples

What an agent's `models()` names are its weights: of `state()` these entries travel, and nothing else, since
random and recurrent state belong to the agent that samples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parllel.agents import Agent, SharedParameters
from parllel.agents.shared_parameters import NEVER
from parllel.buffers import buffer_leaves, buffer_map
from parllel.types import State, Tree


class Published(NamedTuple):
    """Weights in shared memory; it crosses a pipe, both sides then hold the same memory.

    Attributes:
        shared: the arrays and their version.
        layout: path, shape and dtype of each.
        first: what `shared` calls the version that is 0 here.
    """

    shared: SharedParameters
    layout: list[tuple[str, tuple[int, ...], str]]
    first: int

    @classmethod
    def of(cls, agent: Agent) -> Published:
        """Publish the present weights of an agent as version 0."""
        weights = weights_of(agent)
        shared = SharedParameters(_arrays_of(weights))
        return cls(shared, _layout_of(weights), shared.version)

    @property
    def version(self) -> int:
        """How many times new weights were published."""
        return self.shared.version - self.first

    def publish(self, agent: Agent) -> int:
        """Copy the weights if they have changed; return their version.

        Nobody may be loading meanwhile.
        """
        self.shared.publish(_arrays_of(weights_of(agent)))
        return self.version


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
        layout = _layout_of(weights)
        if layout != published.layout:
            raise ValueError(
                f"{type(agent).__name__} in build(): expected the weights of the agent that is "
                f"trained, {published.layout}, got {layout}"
            )
        self._agent = agent
        self._published = published
        self._seen = NEVER
        self._weights: Tree = buffer_map(np.array, weights)  # private memory to load into
        self._arrays = _arrays_of(self._weights)

    def load(self) -> int:
        """Take the weights if they are new; return their version."""
        seen, self._seen = self._seen, self._published.shared.load(self._arrays, self._seen)
        if self._seen != seen:
            self._agent.load_state({**self._agent.state(), **self._weights})
        return self._seen - self._published.first


def weights_of(agent: Agent) -> State:
    """Return those entries of the agent's state that are named as its models."""
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
    """Return what `weights_of` leaves out of the agent's state."""
    names = agent.models()
    return {name: part for name, part in agent.state().items() if name not in names}


def _arrays_of(weights: Tree) -> list[NDArray[Any]]:
    return [np.asarray(leaf) for _, leaf in buffer_leaves(weights)]


def _layout_of(weights: Tree) -> list[tuple[str, tuple[int, ...], str]]:
    leaves = [(path, np.asarray(leaf)) for path, leaf in buffer_leaves(weights)]
    return [(path, leaf.shape, leaf.dtype.str) for path, leaf in leaves]
