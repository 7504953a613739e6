"""The states of environments: of a whole stack of wrappers, layer by layer, without pickle.

The state of a layer comes from the first of these that fits: its class has methods `state()` and
`load_state(state)`; its class is known (see `known_layers`); it is a wrapper without attributes of its own,
which has no state; else its state is missing. It is missing, too, where `state()` raises NoStateError.
"""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.envs.states.known_layers import known_state
from parllel.envs.states.layer_state import AttributeState, LayerState, NoStateError
from parllel.envs.states.pickled_state import PickledState
from parllel.envs.states.plain_values import plain_copy
from parllel.envs.states.random_state import describe_space, generator_from, generator_state
from parllel.errors import add_note
from parllel.types import State

# What gymnasium's base classes of wrappers keep; none of it changes.
_OF_ALL_WRAPPERS = {
    "_action_space",
    "_cached_spec",
    "_metadata",
    "_observation_space",
    "_saved_kwargs",
    "env",
}


def env_state(env: Any) -> State | None:
    """Return the state of `env` and all its wrappers, or None if a layer cannot save its state.

    The state holds only arrays and JSON values and shares no memory with the environment. Saving
    does not disturb the environment. The random states of spaces are not included, see
    `space_state`.

    Raises:
        TypeError: if the `state()` of a layer returns anything but a dict of arrays and JSON values.
    """
    try:
        return _state_of(env)
    except NoStateError:
        return None


def missing_env_state(env: Any) -> str | None:
    """Return which layer cannot save its state and why, or None if all layers can.

    The layers are asked for their states, so this takes as long as `env_state`.
    """
    try:
        _state_of(env)
    except NoStateError as error:
        return str(error)
    return None


def load_env_state(env: Any, state: State) -> None:
    """Load a state into a new environment, which continues exactly as the saved one would have.

    Args:
        env: environment made in the same way as the saved one, and never reset.
        state: a state returned by `env_state`, or its copy from a file.

    Raises:
        TypeError: if `state` is not a dict.
        ValueError: if layers or shapes differ, or the state is damaged. The message names the
            layer. The environment must not be used afterwards.
    """
    if not isinstance(state, dict):
        raise TypeError(f"{name_of(env)}: expected its state as a dict, got {state!r}")
    layers = _layers_of(env)
    saved = _check_layers(env, layers, state)
    # As text: damage may have put arrays there, which answer == with arrays.
    spaces, came = (
        json.dumps(part, sort_keys=True, default=repr)
        for part in (_describe_spaces(env), state.get("spaces"))
    )
    if spaces != came:
        raise ValueError(
            f"{name_of(env)}: expected the state of an environment with the spaces {spaces}, got "
            f"one with the spaces {came}"
        )
    # From the inside out: the load_state of a wrapper may look at what it wraps.
    for layer, record in zip(reversed(layers), reversed(saved), strict=True):
        _load_layer(layer, record)


def state_as(env: Any, cls: type[Any]) -> State:
    """Return the state that would be saved if the class of `env` were `cls`, a class whose state is known.

    Use it in the `state()` of a subclass that adds to this state. `cls` may be
    `gymnasium.envs.mujoco.MujocoEnv`.

    Raises:
        TypeError: if `env` is not an instance of `cls`.
        ValueError: if the state of `cls` is not known.
    """
    return _known_as(env, cls).state(env)


def load_state_as(env: Any, cls: type[Any], state: State) -> None:
    """Load a state returned by `state_as`. Use it in `load_state`.

    Raises:
        TypeError, ValueError: for the reasons given in `state_as`, or if the state does not fit.
    """
    _known_as(env, cls).load_state(env, state)


def name_of(layer: Any) -> str:
    """Return `Class<id>`, with the id or the class of the environment inside, or only `Class`."""
    core = getattr(layer, "unwrapped", layer)
    # A spec of EnvPool's has no id.
    spec_id = getattr(getattr(core, "spec", None), "id", None)
    name = type(layer).__name__
    if spec_id is None and core is layer:
        return name
    return f"{name}<{type(core).__name__ if spec_id is None else spec_id}>"


def _layers_of(env: Any) -> list[Any]:
    """Return the wrappers from the outside in, and the environment; what is pickled is one layer."""
    layers = [env]
    while isinstance(layers[-1], (gym.Wrapper, gym.vector.VectorWrapper)):
        if isinstance(layers[-1], PickledState):
            break
        layers.append(layers[-1].env)
    return layers


def _state_of(env: Any) -> State:
    return {
        "layers": [_state_of_layer(layer) for layer in _layers_of(env)],
        "spaces": _describe_spaces(env),
    }


def _state_of_layer(layer: Any) -> State:
    """Return class, state, and the random numbers that every environment has."""
    cls = type(layer)
    record: State = {"module": cls.__module__, "class": cls.__qualname__}
    try:
        if _says_itself(cls):
            # Through the class: CartPole and others have an attribute `state` that hides the method.
            answer = cls.state(layer)
            if not isinstance(answer, dict):
                raise TypeError(f"{name_of(layer)}.state(): expected a dict, got {answer!r}")
            # In the form that a file gives back, so that `load_state` sees one form alone.
            record["state"] = plain_copy(answer, f"{name_of(layer)}.state()")
        else:
            record["state"] = _known(layer).state(layer)
        record.update(_random_state_of(layer))
    except NoStateError as error:
        raise NoStateError(f"{name_of(layer)}: {error}") from error
    return record


def _load_layer(layer: Any, record: State) -> None:
    cls = type(layer)
    if _says_itself(cls):
        try:
            cls.load_state(layer, plain_copy(record["state"]))
        except Exception as error:
            add_note(error, f"while the saved state of {name_of(layer)} was loaded")
            raise
    else:
        try:
            _known(layer).load_state(layer, record["state"])
        # All that nonsense in a damaged file can raise here; a user's own `load_state` keeps its errors.
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{name_of(layer)}: {error}") from error
    if "np_random" in record:
        try:
            _load_random_state(layer, record["np_random"], record["np_random_seed"])
        except (KeyError, ValueError) as error:
            raise ValueError(f"{name_of(layer)}: {error}") from error


def _says_itself(cls: type[Any]) -> bool:
    # At the class: wrappers would forward the question to what they wrap.
    return all(callable(getattr(cls, name, None)) for name in ("state", "load_state"))


def _known(layer: Any) -> LayerState:
    known = known_state(type(layer))
    # Without attributes of its own it has nowhere to keep a state.
    if known is None and isinstance(layer, gym.Wrapper) and set(vars(layer)) <= _OF_ALL_WRAPPERS:
        return AttributeState()
    if known is None:
        raise NoStateError(
            "its state cannot be saved; give the class methods state() and load_state(state), or wrap it in "
            "parllel.envs.states.PickledState"
        )
    return known


def _known_as(env: Any, cls: type[Any]) -> LayerState:
    if not isinstance(env, cls):
        raise TypeError(f"{name_of(env)}: expected a {cls.__qualname__}")
    known = known_state(cls)
    if known is None:
        raise ValueError(f"{name_of(env)}: the state of class {cls.__qualname__} cannot be saved")
    return known


def _random_state_of(layer: Any) -> State:
    """Return the state of `np_random` for an environment, nothing for a wrapper: it has none."""
    if not isinstance(layer, (gym.Env, gym.vector.VectorEnv)):
        return {}
    # Asked although both are environments to Python: their `np_random` is that of what they wrap.
    if isinstance(layer, (gym.Wrapper, gym.vector.VectorWrapper)):
        return {}
    # Not the property, which makes a generator if there is none: saving must not disturb.
    generator = layer._np_random
    if not isinstance(generator, np.random.Generator | None):
        raise NoStateError(f"its np_random is a {type(generator)}, expected a numpy generator")
    try:
        saved = None if generator is None else generator_state(generator)
    except TypeError as error:
        raise NoStateError(f"np_random: {error}") from error
    seed = layer._np_random_seed
    return {"np_random": saved, "np_random_seed": None if seed is None else int(seed)}


def _load_random_state(layer: Any, saved: Any, seed: Any) -> None:
    if seed is not None and not isinstance(seed, int):
        raise ValueError(f"np_random_seed: expected an int or None, got {seed!r}")
    # Past the property, which would forget the seed.
    layer._np_random = None if saved is None else generator_from(saved)
    layer._np_random_seed = seed


def _describe_spaces(env: Any) -> Any:
    return {
        name: describe_space(getattr(env, f"{name}_space", None))
        for name in ("observation", "action")
    }


def _check_layers(env: Any, layers: list[Any], state: State) -> list[State]:
    """Return the records of the layers; raise ValueError if they are others than those of `env`."""
    saved = state.get("layers")
    if not isinstance(saved, list) or not all(map(_is_record, saved)):
        raise ValueError(f"{name_of(env)}: this is not the state of an environment")
    expected = [(type(layer).__module__, type(layer).__qualname__) for layer in layers]
    came = [(record["module"], record["class"]) for record in saved]
    if len(came) == len(expected) and all(map(_same_class, expected, came)):
        return saved
    raise ValueError(
        f"{name_of(env)}: expected the state of the layers {_chain(expected)}, got the state of "
        f"{_chain(came)}"
    )


def _is_record(record: Any) -> bool:
    return (
        isinstance(record, dict)
        and all(isinstance(record.get(name), str) for name in ("module", "class"))
        and "state" in record
    )


def _same_class(one: tuple[str, str], other: tuple[str, str]) -> bool:
    # A class of the script that was run is elsewhere when another imports it.
    return one == other or (one[1] == other[1] and "__main__" in (one[0], other[0]))


def _chain(classes: list[tuple[str, str]]) -> str:
    return " around ".join(f"{module}.{name}" for module, name in classes)
