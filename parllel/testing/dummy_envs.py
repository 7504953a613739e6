"""A deterministic environment whose numbers identify the step that they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.types import State, Tree

LAYOUTS = ("box", "float64", "scalar", "image", "discrete", "dict", "tuple")
ENDS = ("terminated", "truncated", "both", "alternate")
_STATE = ("_mark", "_episode", "_step", "_length")
LARGE = 2**20  # below the 24 bits that float32 holds exactly


class CountingEnv(gym.Env[Any, Any]):
    """Environment that counts steps and episodes, and returns the counts in each observation.

    Args:
        lengths: steps of an episode; a sequence is repeated, one entry per episode.
        random_lengths: draw the length of each episode from `lengths` with the environment's own
            generator, not taken in order.
        end: how episodes end: "terminated", "truncated", "both" at once, or "alternate".
        layout: form of an observation, one of `LAYOUTS`; see `observation_of`.
        action_space: any space; default Discrete(4).
        reuse: return the same array each time, with new numbers.

    The reward is `step + action_number(action) / 8`, so it shows which action arrived. Info holds "step",
    "episode", "half" [1] float32 and "note", a string. Actions are kept in `actions`.

    Raises:
        ValueError: for an unknown `layout` or `end`.
        RuntimeError: when stepped before a reset or after the end of an episode.
    """

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(
        self,
        lengths: int | Sequence[int] = 5,
        *,
        random_lengths: bool = False,
        end: str = "terminated",
        layout: str = "box",
        action_space: gym.Space[Any] | None = None,
        reuse: bool = False,
    ) -> None:
        if layout not in LAYOUTS:
            raise ValueError(f"layout: expected one of {LAYOUTS}, got {layout!r}")
        if end not in ENDS:
            raise ValueError(f"end: expected one of {ENDS}, got {end!r}")
        self.lengths = (lengths,) if isinstance(lengths, int) else tuple(lengths)
        self.random_lengths = random_lengths
        self.end = end
        self.layout = layout
        self.observation_space = space_of(layout)
        self.action_space = spaces.Discrete(4) if action_space is None else action_space
        self.render_mode = "rgb_array"
        # An attribute of the simulator, for cages to read and to set.
        self.gravity = 9.8
        self.actions: list[Any] = []
        self.closed = 0
        # As simulators do that return a view of their own memory: what is kept of it changes with each step.
        self._reused = observation_of(layout, 0, 0, 0) if reuse else None
        self._mark = 0
        self._episode = -1
        self._step = 0
        self._length = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tree, dict[str, Any]]:
        """Begin the next episode; a seed determines the mark in all observations."""
        super().reset(seed=seed)
        if seed is not None or self._episode < 0:
            # It shows from which seed an observation comes, and so from which column.
            self._mark = int(self.np_random.integers(1, LARGE))
        self._episode += 1
        self._step = 0
        if self.random_lengths:
            self._length = int(self.np_random.choice(self.lengths))
        else:
            self._length = self.lengths[self._episode % len(self.lengths)]
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Tree, float, bool, bool, dict[str, Any]]:
        """Count a step, and end the episode after its last one."""
        if self._step >= self._length:
            # Real environments play on or crash; this one does not let a missed reset pass.
            raise RuntimeError(f"stepped without a reset, after {self._step} of {self._length}")
        self.actions.append(action)
        self._step += 1
        over = self._step == self._length
        end = self.end
        if end == "alternate":
            end = ("terminated", "truncated")[self._episode % 2]
        terminated = over and end in ("terminated", "both")
        truncated = over and end in ("truncated", "both")
        # Eighths are exact in float32, so tests can compare without a tolerance.
        reward = self._step + action_number(action) / 8
        return self._observation(), reward, terminated, truncated, self._info()

    def _observation(self) -> Tree:
        observation = observation_of(self.layout, self._mark, self._episode, self._step)
        if self._reused is None:
            return observation
        return _overwrite(self._reused, observation)

    def _info(self) -> dict[str, Any]:
        return {
            "step": self._step,
            "episode": self._episode,
            "half": np.array([self._step / 2], np.float32),
            # Nothing that a buffer can store: cages must leave it alone unless it is asked for.
            "note": f"episode {self._episode}",
        }

    def state(self) -> State:
        """Return the counters; the generator is saved with that of every environment."""
        return {name: getattr(self, name) for name in _STATE}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        for name in _STATE:
            setattr(self, name, state[name])

    def render(self) -> Any:
        """Return a picture [2, 2, 3] uint8, filled with the number of the step."""
        return np.full((2, 2, 3), self._step % 256, np.uint8)

    def add(self, left: float, right: float = 1.0) -> float:
        """Return a sum: a method for cages to call."""
        return left + right

    def fail(self, message: str = "asked to") -> None:
        """Raise ValueError."""
        raise ValueError(message)

    def close(self) -> None:
        """Count the calls in `closed`."""
        self.closed += 1


def space_of(layout: str) -> gym.Space[Any]:
    """Return the observation space of a layout of `CountingEnv`."""
    inf = np.inf
    if layout == "image":
        return spaces.Box(0, 255, (2, 2, 3), np.uint8)
    if layout == "discrete":
        return spaces.Discrete(1000)
    if layout == "scalar":
        return spaces.Box(-inf, inf, (1,), np.float32)
    if layout == "dict":
        mark = spaces.Box(-inf, inf, (1,), np.float32)
        return spaces.Dict({"mark": mark, "clock": space_of("tuple")})
    if layout == "tuple":
        return spaces.Tuple((spaces.Discrete(LARGE), spaces.Box(-inf, inf, (2,), np.float32)))
    return spaces.Box(-inf, inf, (3,), np.float64 if layout == "float64" else np.float32)


def observation_of(layout: str, mark: int, episode: int, step: int) -> Tree:
    """Return an observation of `CountingEnv`.

    "box", "float64": [mark, episode, step].  "scalar": [100 episode + step], shape (1,).
    "image": the same three numbers modulo 256 in each pixel.  "discrete": step.
    "tuple": (episode, [step, mark]).  "dict": the mark and such a tuple.
    """
    if layout == "image":
        return np.tile(np.array([mark % 256, episode % 256, step % 256], np.uint8), (2, 2, 1))
    if layout == "discrete":
        return np.int64(step)
    if layout == "scalar":
        return np.array([100 * episode + step], np.float32)
    if layout == "tuple":
        return np.int64(episode), np.array([step, mark], np.float32)
    if layout == "dict":
        clock = observation_of("tuple", mark, episode, step)
        return {"mark": np.array([mark], np.float32), "clock": clock}
    return np.array([mark, episode, step], np.float64 if layout == "float64" else np.float32)


def action_number(action: Any) -> float:
    """Return the sum of all numbers of an action, however it is nested."""
    if isinstance(action, Mapping):
        return sum(action_number(part) for part in action.values())
    if isinstance(action, tuple):
        return sum(action_number(part) for part in action)
    numbers: NDArray[Any] = np.asarray(action, np.float64)
    return float(numbers.sum())


def _overwrite(target: Tree, value: Tree) -> Tree:
    if isinstance(target, dict):
        for name, part in value.items():
            target[name] = _overwrite(target[name], part)
        return target
    if isinstance(target, tuple):
        return tuple(_overwrite(old, new) for old, new in zip(target, value, strict=True))
    # A number cannot be changed in place.
    if np.ndim(target) == 0:
        return value
    target[...] = value
    return target
