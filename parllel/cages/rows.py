"""Views of the rows that a cage reads and writes, made once when it is bound to a buffer.

Rows of stacked frames that are stored frame by frame have no views; what stands for these is written alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays import Array, LazyFramesArray
from parllel.buffers import EnvSamples, NamedArrayTuple, NamedTuple, Samples, buffer_leaves
from parllel.cages.env_info_rows import EnvInfoRows
from parllel.cages.paths import at_path
from parllel.cages.spaces import ActionReader, Spaces, action_reader, example_of
from parllel.cages.trajectories import is_number
from parllel.types import Tree

MOST_CELLS = 2**16  # views that are made when a cage is bound, of about 100 bytes each
CAGE_FIELDS = ("observation", "reward", "terminated", "truncated", "done", "env_info")


class Rows:
    """The columns `[lo, hi)` of a batch, row by row, as plain numpy.

    Args:
        action: the buffer of actions.
        env: node with the fields that a cage writes (`CAGE_FIELDS`), and `agent_info` and `env_info_default`
            if they are to be read.
        columns: which columns belong to the cage.
        environment: spaces to check the buffers against.

    Raises:
        ValueError: if a buffer's shape does not fit the space, or observations have no padding row to take
            the one that follows the batch; names the field.
    """

    def __init__(
        self, action: Tree, env: NamedArrayTuple, columns: slice, environment: Spaces
    ) -> None:
        self.lo, self.hi = columns.start, columns.stop
        name = environment.name
        _check(env.observation, example_of(environment.observation), f"{name}: env.observation")
        for path, leaf in buffer_leaves(env.observation, "env.observation"):
            if leaf.padding < 1:
                raise ValueError(f"{name}: {path}: expected padding of at least 1, got {leaf!r}")
        self.T = len(env.reward)
        # Of each leaf its name, the array, and the views of its first and last row.
        self.bound: list[tuple[str, Array, Any, Any]] = []
        self.observation = self._leaves(env.observation, self.T + 1, "env.observation")
        self.single = self.observation[0][1] if isinstance(env.observation, Array) else None
        # What a row of results is written to, looked up together.
        results = (
            self._views(getattr(env, field), self.T, f"env.{field}")
            for field in ("reward", "terminated", "truncated", "done")
        )
        self.results = list(zip(*results, strict=True))
        self.flags = [_together(flags) for _, *flags in self.results]
        info = None if env.env_info is None else self._leaves(env.env_info, self.T, "env.env_info")
        defaults = env.env_info_default if "env_info_default" in env._fields else None
        self.env_info = (
            None if info is None else EnvInfoRows(info, defaults, columns, environment.name)
        )
        agent_info = env.agent_info if "agent_info" in env._fields else None
        self.agent_info = None
        if agent_info is not None:
            self.agent_info = self._nested(agent_info, "env.agent_info")
        # A view of each cell of the observations, where that is not too many and nothing else is stored.
        self.cells: list[list[NDArray[Any]]] | None = None
        n = self.hi - self.lo
        if self.single is not None and not self.env_info and n * self.T <= MOST_CELLS:
            self.cells = [[row[i, ...] for i in range(n)] for row in self.single]
        self.read_actions: ActionReader | None = None
        self.action: list[tuple[tuple[str, ...], list[NDArray[Any]]]] = []
        if action is not None:
            _check(action, example_of(environment.action), f"{name}: agent.action")
            self.action = self._leaves(action, self.T, "agent.action")
            nested = self._nested(action, "agent.action")
            self.read_actions = action_reader(environment.action, nested)

    def _views(self, array: Array, rows: int, name: str) -> list[Any]:
        columns = slice(self.lo, self.hi)
        if isinstance(array, LazyFramesArray):
            views: list[Any] = [array.writers(t, columns) for t in range(rows)]
        else:
            views = [np.asarray(array[t, columns]) for t in range(rows)]
        self.bound.append((name, array, views[0], views[-1]))
        return views

    def _leaves(self, tree: Tree, rows: int, name: str) -> list[tuple[tuple[str, ...], list[Any]]]:
        return [
            (tuple(path.split(".")) if path else (), self._views(leaf, rows, _joined(name, path)))
            for path, leaf in buffer_leaves(tree)
        ]

    def _nested(self, tree: Tree, name: str) -> Any:
        if isinstance(tree, Array):
            return self._views(tree, self.T, name)
        return {
            field: self._nested(value, f"{name}.{field}") for field, value in tree._asdict().items()
        }

    def write_observation(self, t: int, i: int, observation: Tree) -> None:
        """Write the observation of the i-th environment into row `t`."""
        if self.single is not None:
            self.single[t][i] = observation
            return
        for path, rows in self.observation:
            leaf = at_path(observation, path)
            if leaf is None:  # numpy would write NaN
                raise TypeError(f"observation.{'.'.join(path)}: expected numbers, got None")
            rows[t][i] = leaf

    def write_results(
        self, t: int, reward: NDArray[np.float64], ended: Sequence[tuple[int, bool, bool]]
    ) -> None:
        """Write row `t` as slices: neighbouring columns may belong to other processes.

        ended: (environment, terminated, truncated) of those whose episode ended.
        """
        rewards, terminations, truncations, dones = self.results[t]
        rewards[...] = reward
        # Whatever the row held before, in most rows nobody ends.
        for flags in self.flags[t]:
            flags.fill(False)
        for i, terminated, truncated in ended:
            terminations[i], truncations[i], dones[i] = terminated, truncated, True

    def write_part(
        self,
        t: int,
        rewards: Sequence[Any],
        ended: Sequence[tuple[int, bool, bool]],
        failed: int | None,
    ) -> None:
        """Write what there is of row `t`, in which an environment failed; its cells stay as they are.

        Where no step was made (None) the reward becomes NaN, so that nobody takes it for this row's. What is
        no number stays unwritten.
        """
        ends = {i: (terminated, truncated) for i, terminated, truncated in ended}
        row, *flags = self.results[t]
        for i, reward in enumerate(rewards):
            if i == failed:
                continue
            if reward is None:
                _disown(row, i)
            elif is_number(reward):
                row[i] = reward
            else:
                continue
            values = (*ends.get(i, (False, False)), i in ends)
            for flag, value in zip(flags, values, strict=True):
                flag[i] = value

    def clear_observation(self, t: int, i: int) -> None:
        """Write zeros, where there is no observation."""
        for _, rows in self.observation:
            rows[t][i] = 0

    def agent_info_of(self, t: int, i: int) -> Tree:
        """Return a copy of what the agent said of one cell."""
        return _cell(self.agent_info, t, i)

    def write_action(self, t: int, i: int, action: Any) -> None:
        """Write an action that the environment's own space was asked for."""
        for path, rows in self.action:
            rows[t][i] = at_path(action, path)


def disown(reward: Array, t: int, columns: slice) -> None:
    """Write NaN where the rewards of row `t` are not known."""
    _disown(np.asarray(reward[t]), columns)


def _disown(row: NDArray[Any], location: int | slice) -> None:
    if row.dtype.kind == "f":  # whole numbers have none that is no reward
        row[location] = np.nan


def _joined(name: str, path: str) -> str:
    return f"{name}.{path}" if path else name


def _together(views: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return one array over equal views at equal distances in one memory; else the views themselves.

    Fields of one type are allocated side by side, and one call that writes all costs a third.
    """
    first, second = views[:2]
    places = [view.ctypes.data for view in views]
    distance = places[1] - places[0]
    alike = all(view.dtype == first.dtype and view.strides == first.strides for view in views)
    even = all(b - a == distance for a, b in pairwise(places))
    if not (alike and even and distance > 0 and _owner(first) is _owner(second)):
        return views
    shape, strides = (len(views), *first.shape), (distance, *first.strides)
    return [np.lib.stride_tricks.as_strided(first, shape, strides)]


def _owner(view: NDArray[Any]) -> Any:
    """Return the object whose memory it is."""
    owner: Any = view
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    return owner.obj if isinstance(owner, memoryview) else owner


def _cell(node: Any, t: int, i: int) -> Tree:
    if isinstance(node, dict):
        return NamedTuple(**{name: _cell(part, t, i) for name, part in node.items()})
    return np.array(node[t][i])


def cage_part(samples: Samples, *, agent_info: bool = False) -> tuple[Tree, dict[str, Tree]]:
    """Return the action buffer and the fields of `samples.env` that a cage writes.

    agent_info: add the agent's, which its TrajInfo is told of.

    Raises:
        TypeError: if `samples` is not a buffer of samples.
    """
    if not isinstance(samples, Samples) or not isinstance(samples.env, EnvSamples):
        raise TypeError(f"samples: expected Samples(agent, env), got {type(samples).__name__}")
    fields = {name: getattr(samples.env, name) for name in CAGE_FIELDS}
    if "env_info_default" in samples.env._fields:
        fields["env_info_default"] = samples.env.env_info_default
    if agent_info and getattr(samples.agent, "agent_info", None) is not None:
        fields["agent_info"] = samples.agent.agent_info
    return samples.agent.action, fields


def _check(buffer: Tree, example: Tree, what: str) -> None:
    """Compare a buffer with an example of one cell, leaf by leaf."""
    if isinstance(example, tuple):
        example = {f"_{i}": part for i, part in enumerate(example)}
    if isinstance(example, dict):
        if not isinstance(buffer, NamedArrayTuple) or set(buffer._fields) != set(example):
            raise ValueError(f"{what}: expected fields {sorted(example)}, got {buffer!r}")
        for name, part in example.items():
            _check(getattr(buffer, name), part, f"{what}.{name}")
        return
    expected = np.shape(example)
    if not isinstance(buffer, Array) or buffer.shape[2:] != expected:
        raise ValueError(f"{what}: expected an Array [T, B, *{list(expected)}], got {buffer!r}")
