"""The functions and settings of a compiled environment: checked at the class, compiled on first use.

class body             checked                                 compiled
reset, step, observe   names and arguments, at the decorator   with numba, for the layout of the state
                       results, when the first object is made
render                 arguments                               never
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.errors import add_note
from parllel.system.compilation import compiled, compiles

_ARGUMENTS = {
    "reset": ("state", "rng"),
    "step": ("state", "action", "rng"),
    "observe": ("state", "out"),
    "render": ("state",),
}
_SETTINGS = (
    "observation_space",
    "action_space",
    "state",
    "parameters",
    "max_episode_steps",
    "metadata",
)
# What every class has by itself.
_ORDINARY = {*vars(type("", (), {})), "__annotations__", "__firstlineno__", "__static_attributes__"}


class Triple(NamedTuple):
    """The three functions of an environment, compiled or not."""

    reset: Any
    step: Any
    observe: Any


@dataclass(frozen=True)
class EnvFunctions:
    """What a class body passed to `compiled_env` defines.

    Attributes:
        name: name of the class, for messages.
        observation_space, action_space: spaces of one environment.
        state: dtype of the record, the parameters included.
        parameters: default values of the parameters.
        max_episode_steps: the step in which an episode is truncated; None for no limit.
        plain: the functions as they were written.
        render: the function that draws; None if there is none.
        loops: compiled loops around the functions, of those that make them.
    """

    name: str
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    state: np.dtype[Any]
    parameters: Mapping[str, Any]
    max_episode_steps: int | None
    metadata: Mapping[str, Any]
    plain: Triple
    render: Callable[[Any], NDArray[np.uint8]] | None
    loops: dict[Any, Any] = field(default_factory=dict, repr=False)
    _checked: list[bool] = field(default_factory=list, repr=False)

    @cached_property
    def compiled(self) -> Triple:
        """The functions compiled for the dtypes of the spaces; the plain ones if nothing is compiled.

        Raises:
            TypeError: if a function cannot be compiled. The message names it and the line.
        """
        if not compiles():
            return self.plain
        signatures = self.signatures(example_of(self.observation_space))
        made = [
            self._compile(name, function, signature)
            for name, function, signature in zip(
                Triple._fields, self.plain, signatures, strict=True
            )
        ]
        return Triple(*made)

    def _compile(self, name: str, function: Any, signature: Any) -> Any:
        try:
            # As a whole: constants and helpers may be in other files.
            return compiled(signature, whole=True)(function)
        except Exception as error:  # mostly numba's own, with a line, but not all of them
            line = getattr(error, "loc", None)
            if line is None:
                where = (
                    f"{function.__code__.co_filename}, from line {function.__code__.co_firstlineno}"
                )
            else:
                where = f"{line.filename}, line {line.line}"
            raise TypeError(
                f"{self.name}.{name} cannot be compiled by numba: {where}: {_brief(error)}"
            ) from error

    def signatures(self, out: Any) -> Triple:
        """Return the numba signatures of the functions, for observations like `out`."""
        import numba as untyped

        # Neither has types.
        numba: Any = untyped
        types: Any = untyped.types
        record = numba.from_dtype(self.state)
        rng = numba.typeof(np.random.default_rng(0))
        action = types.int64
        if not isinstance(self.action_space, spaces.Discrete):
            action = numba.typeof(np.asarray(_example_action(self.action_space)))
        result = types.Tuple((types.float64, types.boolean))
        return Triple(
            types.void(record, rng),
            result(record, action, rng),
            types.void(record, numba.typeof(out)),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is compiled: another process finds it on disk, but would compile what it is sent."""
        kept = {name: value for name, value in vars(self).items() if name != "compiled"}
        return {**kept, "loops": {}}

    def new_states(self, n: int) -> NDArray[Any]:
        """Return the records of n environments, with the default parameters and zeros elsewhere."""
        states = np.zeros(n, self.state)
        for name, value in self.parameters.items():
            states[name] = value
        return states

    def as_parameter(self, name: str, value: Any) -> Any:
        """Return a value for a parameter. Raises TypeError if it is of another kind than the default."""
        kind = type(self.parameters[name])
        fits = isinstance(value, (bool, np.bool_))
        if kind is not bool:
            whole = isinstance(value, (int, np.integer))
            fits = not fits and (
                whole or (kind is float and isinstance(value, (float, np.floating)))
            )
        if not fits:
            raise TypeError(f"{self.name}: {name}: expected {_KINDS[kind]}, got {value!r}")
        return value

    def check(self) -> None:
        """Run the functions once as Python, and check what they return and write.

        Raises:
            TypeError, ValueError: if a result has another type, or an observation lies outside its space.
                Errors of the functions get a note with their name.
        """
        if self._checked:
            return
        record, rng = self.new_states(1).view(np.recarray)[0], np.random.default_rng(0)
        self._call("reset", record, rng)
        self._observe(record, "reset")
        result = self._call("step", record, _example_action(self.action_space), rng)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(
                f"{self.name}.step: expected (reward, terminated), got {result!r}; an episode is truncated "
                "by max_episode_steps"
            )
        reward, terminated = result
        if not isinstance(reward, (int, float, np.number)) or not math.isfinite(reward):
            raise TypeError(f"{self.name}.step: reward: expected a finite number, got {reward!r}")
        if not isinstance(terminated, (bool, np.bool_)):
            raise TypeError(f"{self.name}.step: terminated: expected a bool, got {terminated!r}")
        self._observe(record, "step")
        self._checked.append(True)

    def _observe(self, record: Any, after: str) -> None:
        out = example_of(self.observation_space, fill=True)
        self._call("observe", record, out)
        for name, space, part in parts_of(self.observation_space, out):
            # Otherwise left as it was.
            if not space.contains(part if part.ndim else part[()]):
                raise ValueError(
                    f"{self.name}.observe: {name}: expected an element of {space} after {after}, got "
                    f"{part!r}"
                )

    def _call(self, name: str, *args: Any) -> Any:
        try:
            return getattr(self.plain, name)(*args)
        except Exception as error:
            add_note(error, f"in {self.name}.{name}, called as Python with an example")
            raise


def functions_of(cls: type[Any]) -> EnvFunctions:
    """Read a class body, see `compiled_env`.

    Raises:
        TypeError: for a missing or unknown name, a function with other arguments, or an unsupported space.
        ValueError: for a field that appears twice, or a step limit below 1.
    """
    name = cls.__name__
    body: dict[str, Any] = {}
    # Similar environments may share functions through a base class.
    for one in reversed(cls.__mro__[:-1]):
        body.update((key, value) for key, value in vars(one).items() if key not in _ORDINARY)
    if unknown := sorted(set(body) - {*_ARGUMENTS, *_SETTINGS}):
        raise TypeError(
            f"{name}: unknown names {unknown}; expected {sorted({*_ARGUMENTS, *_SETTINGS})}. Define "
            "constants and helper functions outside of the class"
        )
    needed = ("observation_space", "action_space", "state", "reset", "step", "observe")
    if missing := [key for key in needed if key not in body]:
        raise TypeError(f"{name}: missing {missing}")
    functions = {key: _function(name, key, body[key]) for key in _ARGUMENTS if key in body}
    limit = body.get("max_episode_steps")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"{name}: max_episode_steps: expected at least 1 or None, got {limit!r}")
    _check_spaces(name, body["observation_space"], body["action_space"])
    parameters = dict(body.get("parameters", {}))
    return EnvFunctions(
        name,
        body["observation_space"],
        body["action_space"],
        _record(name, body["state"], parameters),
        parameters,
        limit,
        dict(body.get("metadata", {})),
        Triple(functions["reset"], functions["step"], functions["observe"]),
        functions.get("render"),
    )


def _function(name: str, key: str, value: Any) -> Callable[..., Any]:
    function = value.__func__ if isinstance(value, staticmethod) else value
    if not inspect.isfunction(function):
        raise TypeError(f"{name}.{key}: expected a function, got {value!r}")
    arguments = tuple(inspect.signature(function).parameters)
    if arguments != _ARGUMENTS[key]:
        raise TypeError(
            f"{name}.{key}: expected the arguments {_ARGUMENTS[key]}, got {arguments}; there is no self"
        )
    return function


def _record(name: str, state: Any, parameters: Mapping[str, Any]) -> np.dtype[Any]:
    """Return an aligned dtype with the fields of the state and of the parameters."""
    try:
        fields = np.dtype(state)
    except TypeError as error:
        raise TypeError(f"{name}.state: expected a dtype with fields, got {state!r}") from error
    if fields.names is None:
        raise TypeError(f"{name}.state: expected a dtype with fields, got {fields}")
    described: list[Any] = [(key, fields[key]) for key in fields.names]
    for key, value in parameters.items():
        kinds = {bool: np.bool_, int: np.int64, float: np.float64}
        if type(value) not in kinds:
            raise TypeError(
                f"{name}.parameters: {key}: expected a bool, int or float, got {value!r}"
            )
        if key in fields.names:
            raise ValueError(f"{name}.parameters: {key!r} is a field of the state too")
        described.append((key, kinds[type(value)]))
    for key, kind in described:
        base = np.dtype(kind).base
        if base.kind not in "biuf":
            raise TypeError(f"{name}.state: {key}: expected numbers, got {kind}")
        # It would hide an attribute or method of the environment.
        if key.startswith("_") or hasattr(gym.Env, key) or key in _RESERVED:
            raise ValueError(f"{name}.state: {key!r} is a name of every environment; use another")
    return np.dtype(described, align=True)


_KINDS = {bool: "a bool", int: "a whole number", float: "a number"}
_RESERVED = ("record", "state", "load_state", "functions", "elapsed_steps", "spec", "render_mode")


def _check_spaces(name: str, observation: Any, action: Any) -> None:
    flat = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    parts = observation.spaces if isinstance(observation, spaces.Dict) else {"": observation}
    for key, part in parts.items():
        if not isinstance(part, flat):
            raise TypeError(
                f"{name}.observation_space: {key or 'expected'}: expected a Box, Discrete, MultiDiscrete or "
                f"MultiBinary, or a Dict of these, got {part}"
            )
    if not isinstance(action, flat):
        raise TypeError(
            f"{name}.action_space: expected a Discrete, Box, MultiDiscrete or MultiBinary, got {action}"
        )


def _example_action(space: gym.Space[Any]) -> Any:
    if isinstance(space, spaces.Discrete):
        return int(space.start)
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    start: Any = getattr(space, "start", 0)
    return np.zeros(space.shape or (), space.dtype) + np.asarray(start, space.dtype)


def example_of(space: gym.Space[Any], *, fill: bool = False) -> Any:
    """Return an array for one observation, or a named tuple of arrays for a Dict.

    fill: whether to fill it with values that are unlikely to be written by accident.
    """
    if isinstance(space, spaces.Dict):
        names = list(space.spaces)
        # The same type for the same fields: numba compiles for it.
        kind = _TUPLES.setdefault(
            tuple(names), NamedTuple("Observation", [(n, Any) for n in names])
        )  # type: ignore[misc]
        return kind(*(example_of(part, fill=fill) for part in space.spaces.values()))
    assert space.dtype is not None
    out = np.zeros(space.shape or (), space.dtype)
    if fill:
        out[...] = (
            np.nan
            if out.dtype.kind == "f"
            else np.iinfo(out.dtype).max
            if out.dtype.kind != "b"
            else 0
        )
    return out


_TUPLES: dict[tuple[str, ...], Any] = {}


def parts_of(space: gym.Space[Any], value: Any) -> list[tuple[str, gym.Space[Any], NDArray[Any]]]:
    """Return name, space and array of each part of an observation."""
    if isinstance(space, spaces.Dict):
        return [(name, part, getattr(value, name)) for name, part in space.spaces.items()]
    return [("out", space, value)]


def _brief(error: Exception) -> str:
    """Return the lines of a numba error that say what is wrong, with its class if they say little."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wanted = [
        line for line in lines if not line.startswith(("Failed in", "During", "File", "<source"))
    ]
    return "; ".join(wanted[:3]) if len(wanted) > 1 else repr(error)
