"""The state of a ParallelEnvAdapter, and of the environment with several agents inside it."""

from __future__ import annotations

from typing import Any

from parllel.envs.states import mpe_state
from parllel.envs.states.layer_state import NoStateError
from parllel.envs.states.plain_values import plain_copy
from parllel.types import State


class ParallelEnvState:
    """Who acts next, who was terminated, and the environment inside.

    The state of that one comes from methods `state()` and `load_state(state)` of its class, if it has both
    (PettingZoo has a `state()` of its own, for another purpose), or is known, if it is one of mpe2's.
    """

    def state(self, layer: Any) -> State:
        """Return the state of the adapter and of the environment inside."""
        inside = layer.parallel_env
        cls = type(inside)
        if _says_itself(cls):
            # Through the class, as an attribute of the environment may have that name.
            answer = cls.state(inside)
            if not isinstance(answer, dict):
                raise TypeError(f"{cls.__name__}.state(): expected a dict, got {answer!r}")
            world = plain_copy(answer, f"{cls.__name__}.state()")
        elif mpe_state.knows(inside):
            world = mpe_state.parallel_state(inside)
        else:
            raise NoStateError(
                f"the state of the {cls.__name__} inside cannot be saved; give its class methods state() "
                "and load_state(state)"
            )
        return {
            "live": list(layer._live),
            # JSON has no sets, and equal states must be equal lists.
            "terminated": sorted(layer._terminated),
            "class": cls.__qualname__,
            "inside": world,
        }

    def load_state(self, layer: Any, state: State) -> None:
        """Load what `state` returned."""
        inside = layer.parallel_env
        cls = type(inside)
        if state["class"] != cls.__qualname__:
            raise ValueError(f"expected the state of a {cls.__qualname__}, got {state['class']!r}")
        for name in ("live", "terminated"):
            if not isinstance(state[name], list) or not set(state[name]) <= set(layer.agents):
                raise ValueError(f"{name}: expected some of {layer.agents}, got {state[name]!r}")
        if _says_itself(cls):
            cls.load_state(inside, plain_copy(state["inside"]))
        else:
            mpe_state.load_parallel_state(inside, state["inside"])
        # Last, as loading what is inside may be refused.
        layer._live = list(state["live"])
        layer._terminated = set(state["terminated"])


def _says_itself(cls: type[Any]) -> bool:
    return all(callable(getattr(cls, name, None)) for name in ("state", "load_state"))
