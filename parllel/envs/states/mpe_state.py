"""The state of mpe2's worlds, as PettingZoo hands them out.

A world is a small graph of plain objects: agents and landmarks, their states and actions, and references
between them, such as an agent's goal. The objects are the same in every world made alike, so each is known by
its place, and what its attributes hold is saved: values, or the places of other objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.envs.states.layer_state import NoStateError
from parllel.envs.states.plain_values import freeze, thaw
from parllel.envs.states.random_state import generator_from, generator_state
from parllel.types import State

_TO_PARALLEL = "pettingzoo.utils.conversions.aec_to_parallel_wrapper"
_ORDER = "pettingzoo.utils.wrappers.order_enforcing.OrderEnforcingWrapper"
_WITHOUT_STATE = {
    "pettingzoo.utils.wrappers.assert_out_of_bounds.AssertOutOfBoundsWrapper",
    "pettingzoo.utils.wrappers.clip_out_of_bounds.ClipOutOfBoundsWrapper",
}
_ENV = "mpe2._mpe_utils.simple_env.SimpleEnv"
# Made with the environment and never changed, or for drawing only.
_LEFT_OUT = {
    "action_spaces",
    "clock",
    "game_font",
    "metadata",
    "observation_spaces",
    "renderOn",
    "screen",
    "viewer",
}


def knows(parallel_env: Any) -> bool:
    """Return whether this is an environment of mpe2, in mpe2's own wrappers."""
    if _name(type(parallel_env)) != _TO_PARALLEL:
        return False
    *_, core = _chain(parallel_env)
    cls = type(core)
    return cls.__module__.startswith("mpe2.") and any(_name(base) == _ENV for base in cls.__mro__)


def parallel_state(parallel_env: Any) -> State:
    """Return the state of the wrappers and the world.

    Raises:
        NoStateError: if any part of it cannot be saved.
    """
    *wrappers, core = _chain(parallel_env)
    for agent in core.world.agents:
        # That generator belongs to the whole process, and to no environment that could restore it.
        if agent.u_noise or agent.c_noise:
            raise NoStateError("its agents act with noise from numpy's global generator")
    objects = dict(_objects(core))
    # By id: objects of a world have no names that are unique, and compare as they like.
    places = {id(thing): place for place, thing in objects.items()}
    return {
        # The wrapper gets this attribute in its first reset.
        "was_reset": "agents" in vars(parallel_env),
        "order": [
            [wrapper._has_reset, wrapper._has_updated]
            for wrapper in wrappers
            if _name(type(wrapper)) == _ORDER
        ],
        "core": type(core).__module__,
        "objects": {place: _attributes(place, thing, places) for place, thing in objects.items()},
    }


def load_parallel_state(parallel_env: Any, state: State) -> None:
    """Restore a state returned by `parallel_state`.

    Raises:
        ValueError, TypeError, KeyError: if the state is invalid or belongs to another world.
    """
    if not knows(parallel_env):
        raise ValueError(f"expected one of mpe2's environments, got {parallel_env}")
    *wrappers, core = _chain(parallel_env)
    objects = dict(_objects(core))
    order = [wrapper for wrapper in wrappers if _name(type(wrapper)) == _ORDER]
    saved = state["objects"]
    if state["core"] != type(core).__module__ or set(saved) != set(objects):
        raise ValueError(
            f"expected the state of {type(core).__module__} with {sorted(objects)}, got the state "
            f"of {state['core']} with {sorted(saved)}"
        )
    for wrapper, flags in zip(order, state["order"], strict=True):
        wrapper._has_reset, wrapper._has_updated = map(bool, flags)
    for place, thing in objects.items():
        for name, value in saved[place].items():
            # Past the setters of properties: one of them copies generators.
            vars(thing)[name] = _decode(value, objects)
    if state["was_reset"]:
        parallel_env.agents = list(core.agents)


def _chain(parallel_env: Any) -> Iterator[Any]:
    """Yield the wrappers from the outside in, then what they wrap."""
    layer = parallel_env.aec_env
    while _name(type(layer)) in {_ORDER, *_WITHOUT_STATE}:
        yield layer
        layer = layer.env
    yield layer


def _objects(core: Any) -> Iterator[tuple[str, Any]]:
    """Yield all objects of a world with their places."""
    yield "env", core
    yield "selector", core._agent_selector
    yield "scenario", core.scenario
    yield "world", core.world
    for kind in ("agents", "landmarks"):
        for i, entity in enumerate(getattr(core.world, kind)):
            yield f"{kind}.{i}", entity
            yield f"{kind}.{i}.state", entity.state
            if hasattr(entity, "action"):
                yield f"{kind}.{i}.action", entity.action


def _attributes(place: str, thing: Any, places: Mapping[int, str]) -> State:
    encoded = {}
    for name, value in vars(thing).items():
        # EzPickle keeps the arguments of the constructor, which are the same for worlds made alike.
        if place == "env" and (name in _LEFT_OUT or name.startswith("_ezpickle")):
            continue
        # Spaces are constant here, and functions are those that the scenario made the world with.
        if isinstance(value, gym.Space) or (callable(value) and id(value) not in places):
            continue
        encoded[name] = _encode(f"{place}.{name}", value, places)
    return encoded


def _encode(at: str, value: Any, places: Mapping[int, str]) -> Any:
    if id(value) in places:
        return {"place": places[id(value)]}
    if isinstance(value, np.random.Generator):
        return {"generator": generator_state(value)}
    # Only lists that hold objects of the world; others are values like any other.
    if type(value) is list and any(id(part) in places for part in value):
        return {"things": [_encode(f"{at}[{i}]", part, places) for i, part in enumerate(value)]}
    try:
        return {"value": freeze(value, at)}
    except TypeError as error:
        raise NoStateError(str(error)) from error


def _decode(encoded: Any, objects: Mapping[str, Any]) -> Any:
    if isinstance(encoded, dict) and len(encoded) == 1:
        ((kind, content),) = encoded.items()
        if kind == "place":
            return objects[content]
        if kind == "generator":
            return generator_from(content)
        if kind == "things" and isinstance(content, list):
            return [_decode(part, objects) for part in content]
        if kind == "value":
            return thaw(content)
    raise ValueError(f"expected a saved attribute, got {encoded!r}")


def _name(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
