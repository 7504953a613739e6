"""Environments written as three small functions over a record, which parllel compiles.

an object alone         reset and step call the compiled functions for one record
the same, in a cage     the records of all its environments lie in one array, and whole rows or batches of
                        them are stepped by one compiled call, see cages/stepping/compiled_environments.py
"""

from __future__ import annotations

import operator
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.envs.compiled.env_functions import EnvFunctions, example_of, functions_of
from parllel.types import State


class CompiledEnv(gym.Env[Any, Any]):
    """Base class of the environments that `compiled_env` makes; a `gymnasium.Env`.

    Parameters and fields of the state are attributes: `env.gravity = 3`. Observations are new arrays.

    Args:
        render_mode: None or "rgb_array".
        parameters: values of the parameters that the class defines, in place of their defaults.

    Attributes:
        functions: the functions and settings of the class.

    Raises:
        TypeError: for an unknown parameter, a function that returns something else than it should, or one
            that numba cannot compile; the message names the line.
        ValueError: for an observation outside of its space, or an unknown render mode.
    """

    functions: ClassVar[EnvFunctions]

    def __init__(self, *, render_mode: str | None = None, **parameters: Any) -> None:
        functions = self.functions
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(
                f"{functions.name}: render_mode: expected None or one of "
                f"{self.metadata['render_modes']}, got {render_mode!r}"
            )
        if unknown := sorted(set(parameters) - set(functions.parameters)):
            raise TypeError(
                f"{functions.name}: unknown parameters {unknown}; expected some of "
                f"{sorted(functions.parameters)}"
            )
        functions.check()
        self.render_mode = render_mode
        self.observation_space, self.action_space = (
            functions.observation_space,
            functions.action_space,
        )
        self._reset, self._step, self._observe = functions.compiled
        self._nested = isinstance(self.observation_space, spaces.Dict)
        self._discrete = isinstance(self.action_space, spaces.Discrete)
        self._limit = functions.max_episode_steps or 0
        self._started = False
        self._generator = np.random.default_rng()
        self._states: NDArray[Any] = functions.new_states(1)
        self._counts: NDArray[np.int64] = np.zeros(1, np.int64)
        self._i = 0
        self._record: Any = self._states.view(np.recarray)[0]
        for name, value in parameters.items():
            self.record[name] = functions.as_parameter(name, value)

    def attach(self, states: NDArray[Any], counts: NDArray[np.int64], i: int) -> None:
        """Move the record and the number of elapsed steps to item `i` of these arrays.

        A cage that steps many environments at once keeps their records side by side.
        """
        states[i], counts[i] = self._states[self._i], self._counts[self._i]
        self._states, self._counts, self._i = states, counts, i
        self._record = states.view(np.recarray)[i]

    # Gymnasium's attribute: reset(seed=...) sets it, as does whoever loads a state. The generator itself
    # stays the same object, which compiled code keeps.
    @property
    def _np_random(self) -> np.random.Generator:
        return self._generator

    @_np_random.setter
    def _np_random(self, generator: np.random.Generator | None) -> None:
        if generator is None:
            generator = np.random.default_rng()
        if not isinstance(generator.bit_generator, np.random.PCG64):
            raise ValueError(
                f"{self.functions.name}: np_random: expected a PCG64 generator, got {generator}"
            )
        self._generator.bit_generator.state = generator.bit_generator.state

    @property
    def record(self) -> Any:
        """The record of the state and the parameters, not a copy."""
        return self._record

    @property
    def elapsed_steps(self) -> int:
        """The number of steps since the last reset."""
        return int(self._counts[self._i])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; returns the observation and an empty info.

        Raises:
            ValueError: if there are options: the functions take none.
        """
        if options:
            raise ValueError(f"{self.functions.name}: options: expected none, got {options}")
        super().reset(seed=seed)
        self._reset(self._record, self.np_random)
        self._counts[self._i], self._started = 0, True
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step; returns observation, reward, terminated, truncated and an empty info.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, and after the end of an episode.
            TypeError, ValueError: for an action that is no element of a Discrete space, or has another shape.
        """
        # The functions need not expect a step after the end: compiled code does not check its indices.
        if not self._started:
            raise gym.error.ResetNeeded(f"{self.functions.name}: call reset before step")
        reward, terminated = self._step(self._record, self._plain(action), self.np_random)
        self._counts[self._i] = count = self._counts[self._i] + 1
        truncated = bool(0 < self._limit <= count)
        self._started = not (terminated or truncated)
        return self._observation(), float(reward), bool(terminated), bool(truncated), {}

    def _plain(self, action: Any) -> Any:
        space: Any = self.action_space
        if self._discrete:
            try:
                number = operator.index(action)
            except TypeError:
                raise TypeError(
                    f"{self.functions.name}: action: expected a whole number, got {action!r}"
                ) from None
            if not space.start <= number < space.start + space.n:
                raise ValueError(
                    f"{self.functions.name}: action: expected {space.start} to "
                    f"{space.start + space.n - 1}, got {action}"
                )
            return number
        array = np.ascontiguousarray(action, space.dtype)
        if array.shape != space.shape:
            raise ValueError(
                f"{self.functions.name}: action: expected shape {space.shape}, got {array.shape}"
            )
        return array

    def _observation(self) -> Any:
        out = example_of(self.observation_space)
        self._observe(self._record, out)
        if self._nested:
            return out._asdict()
        return out if out.ndim else out[()]

    def render(self) -> Any:
        """Return a picture, uint8 [H, W, 3]; None without `render_mode="rgb_array"`."""
        if self.render_mode is None or self.functions.render is None:
            return None
        return self.functions.render(self._record)

    def state(self) -> State:
        """Return the record and the number of elapsed steps, for a checkpoint."""
        names: Any = self._record.dtype.names
        return {
            "fields": {name: np.array(self._record[name]) for name in names},
            "elapsed_steps": self.elapsed_steps,
            "started": self._started,
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. Raises ValueError if it has other fields."""
        names: Any = self._record.dtype.names
        fields = state["fields"]
        if set(fields) != set(names):
            raise ValueError(
                f"{self.functions.name}: expected the fields {sorted(names)}, got {sorted(fields)}"
            )
        for name in names:
            value = np.asarray(fields[name])
            expected = self._record.dtype[name].shape
            if value.shape != expected:
                raise ValueError(
                    f"{self.functions.name}: {name}: expected shape {expected}, got {value.shape}"
                )
            self._record[name] = value
        self._counts[self._i] = state["elapsed_steps"]
        self._started = bool(state["started"])


class _Field:
    """Attribute of an environment that is a field of its record."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, env: CompiledEnv | None, owner: Any = None) -> Any:
        if env is None:
            return self
        value = env.record[self._name]
        return value.item() if isinstance(value, np.generic) else value

    def __set__(self, env: CompiledEnv, value: Any) -> None:
        if self._name in env.functions.parameters:
            value = env.functions.as_parameter(self._name, value)
        env.record[self._name] = value


def compiled_env(cls: type[Any]) -> type[CompiledEnv]:
    """Class decorator that makes a `gymnasium.Env` of three functions over a record, compiled by numba.

    The class has no `__init__` and no `self`, and defines or inherits:

    - `observation_space`: a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict of these.
    - `action_space`: a Discrete, Box, MultiDiscrete or MultiBinary.
    - `state`: dtype with the fields that an episode changes. A field may be an array.
    - `parameters` (optional): dict of bools, ints and floats, which are fields of the record too. They are
      arguments and attributes of the environment, and resets leave them alone.
    - `max_episode_steps` (optional): the step in which an episode is truncated.
    - `metadata` (optional): as gymnasium's.
    - `reset(state, rng)`: begins an episode. `rng` is the environment's `numpy.random.Generator`.
    - `step(state, action, rng)`: changes the record; returns the reward and whether the episode terminated.
      `action` is an int for a Discrete space, otherwise an array.
    - `observe(state, out)`: writes the observation to the array `out`; for a Dict, to `out.name`.
    - `render(state)` (optional): returns a picture, uint8 [H, W, 3]. Plain Python.

    Each function is a static method in the Python that numba compiles. In cages whole rows of these
    environments are stepped by one call; with `NUMBA_DISABLE_JIT=1` everything runs as plain Python.

    Raises:
        TypeError, ValueError: for a missing or unknown name, other arguments or an unsupported space.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> @compiled_env
        ... class Counter:
        ...     observation_space = spaces.Box(0, 10, (1,), np.float32)
        ...     action_space = spaces.Discrete(2)
        ...     state = np.dtype([("n", np.int64)])
        ...     @staticmethod
        ...     def reset(state, rng):
        ...         state.n = 0
        ...     @staticmethod
        ...     def step(state, action, rng):
        ...         state.n += action
        ...         return 1.0, state.n == 10
        ...     @staticmethod
        ...     def observe(state, out):
        ...         out[0] = state.n
        >>> env = Counter()
        >>> env.reset(seed=0)
        (array([0.], dtype=float32), {})
        >>> env.step(1)
        (array([1.], dtype=float32), 1.0, False, False, {})
    """
    functions = functions_of(cls)
    modes = ["rgb_array"] if functions.render is not None else []
    body = {
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "functions": functions,
        # The instance sets them too; of the class they serve those that only look.
        "observation_space": functions.observation_space,
        "action_space": functions.action_space,
        "metadata": {"render_modes": modes, **functions.metadata},
        **{name: _Field(name) for name in functions.state.names or ()},
    }
    return type(cls.__name__, (CompiledEnv,), body)
