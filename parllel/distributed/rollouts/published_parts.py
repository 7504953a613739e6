"""The parts of a policy version: the agent's weights and the statistics of step transforms.

    trainer   PublishedParts.state --->  one version  --->  PublishedParts.load   each worker
              (its agent and transforms)                    (its copies of them)

Both travel under one version number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from parllel.agents.handler import Handler
from parllel.agents.weights import weights_of
from parllel.samplers.published_weights import WeightLeaf, check_layout, layout_of
from parllel.transforms.transform import StepTransform
from parllel.types import State

STEP_TRANSFORMS = "step_transforms"


class PublishedLayout(NamedTuple):
    """Names, shapes and dtypes of the published parts, without values. Picklable.

    Attributes:
        agent: class name of the agent.
        weights: paths, shapes and dtypes of the weights.
        statistics: the same for each step transform with statistics.
    """

    agent: str
    weights: list[WeightLeaf]
    statistics: dict[str, list[WeightLeaf]]

    def check(self, state: State) -> None:
        """Raise ValueError unless `PublishedParts.load` can load `state`. Thread-safe."""
        # Only the layout is read, which never changes, so the agent may be in use meanwhile.
        weights, statistics = _apart(state)
        check_layout(self.agent, self.weights, weights, "the weights of the worker's agent")
        if statistics.keys() != self.statistics.keys():
            raise ValueError(
                f"step_transforms: expected statistics for the worker's {sorted(self.statistics)}, "
                f"got statistics for {sorted(statistics)}; give the trainer and the workers the "
                "same step transforms"
            )
        for name, layout in self.statistics.items():
            which = "the statistics of the worker's copy"
            check_layout(name, layout, _ordered(statistics[name]), which)


class PublishedParts:
    """The agent's weights and the statistics of step transforms, which always change together.

    The trainer has one for its own agent and transforms, and each worker has one for its copies. Weights and
    statistics are published under one version, so the version of a step identifies both.

    Args:
        handler: handler of the agent.
        step_transforms: the step transforms in order.

    Raises:
        NotImplementedError: if the agent does not implement `models`.
        ValueError: if the agent names a model "step_transforms", or a published value is neither an array
            nor a number.
    """

    def __init__(self, handler: Handler, step_transforms: Sequence[StepTransform]) -> None:
        self._handler, self._agent = handler, handler.agent
        if STEP_TRANSFORMS in self._agent.models():
            raise ValueError(
                f"{type(self._agent).__name__}: models: expected a name other than "
                f"{STEP_TRANSFORMS!r}, which is reserved for the statistics of step transforms"
            )
        # Transforms without shared state are left out, so the workers' copies may differ.
        # Names include the position in the whole list, which must be the same on both sides.
        self._transforms = {
            f"{number}.{type(transform).__name__}": transform
            for number, transform in enumerate(step_transforms)
            if shared_of(transform)
        }
        # Determined now: agent and transforms must not be read while another thread uses them.
        owner = type(self._agent).__name__
        self.layout = PublishedLayout(
            owner,
            layout_of(owner, weights_of(self._agent)),
            {
                name: layout_of(type(transform).__name__, _ordered(shared_of(transform)))
                for name, transform in self._transforms.items()
            },
        )

    def state(self) -> State:
        """Return the weights, keyed by the names of `models()`.

        Statistics, if there are any, are under "step_transforms".
        """
        # Called between two updates, so weights and statistics are of the same moment.
        weights = weights_of(self._agent)
        if not self._transforms:
            return weights
        shared = {name: shared_of(transform) for name, transform in self._transforms.items()}
        return {**weights, STEP_TRANSFORMS: shared}

    def load(self, state: State) -> None:
        """Load a state returned by `state` in another process or thread."""
        weights, statistics = _apart(state)
        # Merged with the rest of their state, because `load_state` expects a complete one.
        self._handler.load_state({**self._handler.state(), **weights})
        # The worker does not act between the two: it loads them between two turns of its schedule.
        for name, shared in statistics.items():
            # There is one for each name, or `PublishedLayout.check` would have refused the state.
            transform = self._transforms[name]
            transform.load_state({**transform.state(), **shared})


def shared_of(transform: StepTransform) -> State:
    """Return the entries of a transform's state that its copies share.

    Raises:
        ValueError: if the state lacks one of them.
    """
    state = transform.state()
    if transform.shared is None:
        return state
    missing = [name for name in transform.shared if name not in state]
    if missing:
        raise ValueError(
            f"{type(transform).__name__}: expected state() to have an entry for each name in shared, "
            f"{sorted(transform.shared)}; {missing} are missing"
        )
    return {name: state[name] for name in transform.shared}


def _ordered(state: State) -> State:
    # After loading, a transform may have its entries in another order than a new copy.
    return {
        name: _ordered(part) if isinstance(part, dict) else part
        for name, part in sorted(state.items())
    }


def _apart(state: State) -> tuple[State, State]:
    """Split a state into weights and statistics."""
    weights = {name: part for name, part in state.items() if name != STEP_TRANSFORMS}
    return weights, state.get(STEP_TRANSFORMS, {})
