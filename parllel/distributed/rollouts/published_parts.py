"""What one version of a policy consists of."""

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
    """What is published, without its values; it travels to other processes.

    Attributes:
        agent: its class.
        weights: paths, shapes and dtypes.
        statistics: the same of each step transform that has any.
    """

    agent: str
    weights: list[WeightLeaf]
    statistics: dict[str, list[WeightLeaf]]

    def check(self, state: State) -> None:
        """Raise ValueError unless `PublishedParts.load` can take `state`; any thread may call this."""
        weights, statistics = _apart(state)
        check_layout(self.agent, self.weights, weights, "the weights of the worker's agent")
        if statistics.keys() != self.statistics.keys():
            raise ValueError(
                f"step_transforms: expected the statistics of {sorted(self.statistics)}, which the worker "
                f"has, got those of {sorted(statistics)}; give trainer and workers the same step transforms"
            )
        for name, layout in self.statistics.items():
            which = "the statistics of the worker's copy"
            check_layout(name, layout, _ordered(statistics[name]), which)


class PublishedParts:
    """The agent's weights and the statistics of step transforms, which change together or not at all.

    The trainer has one of these for its own agent and transforms, and each worker one for its copies. What
    `state` returns travels under one version, so that the stamp of a step names both.

    Args:
        handler: of the agent.
        step_transforms: in order.

    Raises:
        NotImplementedError: if the agent does not say what its weights are.
        ValueError: if the agent calls some of them "step_transforms", or anything that is published is
            neither an array nor a number.
    """

    def __init__(self, handler: Handler, step_transforms: Sequence[StepTransform]) -> None:
        self._handler, self._agent = handler, handler.agent
        if STEP_TRANSFORMS in self._agent.models():
            raise ValueError(
                f"{type(self._agent).__name__}: models: expected another name than {STEP_TRANSFORMS!r}, "
                "under which the statistics of step transforms are published"
            )
        # Those without anything to share are left out: their copies may be of any kind.
        self._transforms = {
            f"{number}.{type(transform).__name__}": transform
            for number, transform in enumerate(step_transforms)
            if shared_of(transform)
        }
        # Now, as agent and transforms must not be asked while another thread lets them act.
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
        """Return the weights by the names of `models()`, and statistics, if any, as "step_transforms"."""
        weights = weights_of(self._agent)
        if not self._transforms:
            return weights
        shared = {name: shared_of(transform) for name, transform in self._transforms.items()}
        return {**weights, STEP_TRANSFORMS: shared}

    def load(self, state: State) -> None:
        """Take over what `state` returned in another place."""
        weights, statistics = _apart(state)
        # With the rest of their own states, as `load_state` expects all of it.
        self._handler.load_state({**self._handler.state(), **weights})
        for name, shared in statistics.items():
            transform = self._transforms[name]
            transform.load_state({**transform.state(), **shared})


def shared_of(transform: StepTransform) -> State:
    """Return the entries of a transform's state that its copies take over.

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
    # A transform whose state was loaded may have its entries in another order than a new copy.
    return {
        name: _ordered(part) if isinstance(part, dict) else part
        for name, part in sorted(state.items())
    }


def _apart(state: State) -> tuple[State, State]:
    """Return weights and statistics."""
    weights = {name: part for name, part in state.items() if name != STEP_TRANSFORMS}
    return weights, state.get(STEP_TRANSFORMS, {})
