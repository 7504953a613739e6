"""Row views of a batch: the part that a cage reads and writes.

    bound once     views of the memory of all batches, for the cage's columns
    use_batch(k)   lists of row views sliced from these, or kept from an earlier use of batch k

    row           ... lo              hi ...      of one batch; other columns belong to other processes
    t                 reward, flags[t]            written last: observation t + 1 is there by then
    t + 1             observation[t + 1]          row T lies in the padding, and is row 0 of the next batch

Changing the batch neither checks nor sends anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.buffers.batches import PerBatch, batch_number, count_batches, max_kept
from parllel.buffers.named_tuple import NamedArrayTuple, NamedTuple
from parllel.buffers.paths import Path, dotted, leaf_paths, part_at, parts_of
from parllel.buffers.samples import EnvSamples, Samples
from parllel.buffers.tree import buffer_leaves
from parllel.cages.spaces import Spaces, action_reader, example_of, stack_rows_reader
from parllel.cages.stepping.env_info_rows import EnvInfoRows
from parllel.cages.stepping.leaf_rows import FlagRows, LeafRows
from parllel.cages.stepping.trajectories import is_number
from parllel.types import Tree

MAX_CELLS = 2**16  # limit of views kept for all batches together, about 100 bytes each
CAGE_FIELDS = ("observation", "reward", "terminated", "truncated", "done", "env_info")
Leaves: TypeAlias = list[tuple[Path, list[Any]]]
# Returns the actions of row t: a list, or a tree of arrays where they are stacked.
RowReader: TypeAlias = Callable[[int], Any]


@dataclass
class _BatchViews:
    """The views of one batch, named as in `Rows`."""

    observation: Leaves
    single: list[Any] | None
    results: list[tuple[Any, ...]]
    flags: list[list[NDArray[Any]]]
    env_info: list[list[Any]]
    agent_info: Any
    cells: list[list[NDArray[Any]]] | None
    action: Leaves
    read_actions: RowReader | None


class Rows:
    """Reads and writes a cage's columns of a batch, row by row, as plain numpy arrays.

    Args:
        action: the buffer of actions.
        env: node with the fields that a cage writes (`CAGE_FIELDS`), and optionally the fields
            `agent_info` and `env_info_default`, which the cage reads.
        columns: the cage's columns.
        environment: spaces to check the buffers against.
        stacked: whether to read the actions of a row as one tree of arrays [n, ...] instead of a
            list.
        raw: whether to pass on actions as gymnasium's vector environments do, see `action_reader`.

    Attributes:
        T: number of rows in a batch.
        batch: number of the current batch; initially the one that the arrays show.
        n_batches: number of batches in the buffer.
        leaves: all bound fields.
        env_info: writer of infos; None if no infos are stored.
        observation, single, results, flags, agent_info, cells, action, read_actions: views and
            functions for the current batch.

    Raises:
        ValueError: if a buffer's shape does not match the space, or the observations have no
            padding for the row after the batch. The message names the field.
    """

    observation: Leaves
    single: list[Any] | None  # rows of an observation that is a single array
    results: list[tuple[Any, ...]]  # by row: views of reward and flags, looked up together
    flags: list[list[NDArray[Any]]]
    agent_info: Any
    # A view of each observation cell, if there are not too many and no infos are stored.
    cells: list[list[NDArray[Any]]] | None
    action: Leaves
    read_actions: RowReader | None

    def __init__(
        self,
        action: Tree,
        env: NamedArrayTuple,
        columns: slice,
        environment: Spaces,
        *,
        stacked: bool = False,
        raw: bool = False,
    ) -> None:
        self._raw = raw
        self._stacked = stacked
        self.lo, self.hi = columns.start, columns.stop
        name = environment.name
        _check(env.observation, example_of(environment.observation), f"{name}: env.observation")
        # Row T is written before the arrays rotate, so it needs its own memory.
        for path, leaf in buffer_leaves(env.observation, "env.observation"):
            if leaf.padding < 1:
                raise ValueError(f"{name}: {path}: expected padding of at least 1, got {leaf!r}")
        # Without a buffer of actions, rows can only be reset.
        if action is not None:
            _check(action, example_of(environment.action), f"{name}: agent.action")
        self.T = len(env.reward)
        self.leaves: list[LeafRows] = []
        # One more row than the other fields, for the observation after the last step.
        self._observation = self._bind(env.observation, self.T + 1, "env.observation")
        self._single = isinstance(env.observation, Array)
        self._results = [
            self._bind_one(getattr(env, field), self.T, f"env.{field}")
            # `write_results`, `write_stack` and `write_part` unpack the views of
            # a row in this order.
            for field in ("reward", "terminated", "truncated", "done")
        ]
        # Without the reward, which has a different dtype and is always written as a whole.
        self._flags = FlagRows(self._results[1:])
        self._infos: list[tuple[Path, LeafRows]] = []
        self.env_info: EnvInfoRows | None = None
        if env.env_info is not None:
            self._infos = self._bind(env.env_info, self.T, "env.env_info")
            defaults = env.env_info_default if "env_info_default" in env._fields else None
            leaves = [(path, leaf.array.dtype) for path, leaf in self._infos]
            self.env_info = EnvInfoRows(leaves, defaults, columns, name)
        # Bound only if a TrajInfo uses it, as it is then copied in every step.
        agent_info = env.agent_info if "agent_info" in env._fields else None
        self._agent_info = self._bind_nested(agent_info, "env.agent_info")
        self._action_space = environment.action
        self._action = [] if action is None else self._bind(action, self.T, "agent.action")
        self._nested_action = self._bind_nested(action, "agent.action")
        self._bind_batches()

    def _bind_batches(self) -> None:
        arrays = [leaf.array for leaf in self.leaves]
        self.n_batches = count_batches(arrays)
        n_views = sum(leaf.n_rows for leaf in self.leaves)
        n_cells = (self.hi - self.lo) * self.T
        # Cells are for the fast path of `Environments`, which supports neither nested observations nor infos.
        plain = self._single and not self.env_info and not self._stacked
        self._has_cells = plain and n_cells <= MAX_CELLS
        # The views of a replay's thousands of batches would take too much memory.
        most = max_kept(MAX_CELLS, n_views + n_cells * self._has_cells, self.n_batches)
        self._batches = PerBatch(self._views_of, most)
        # Not always batch 0: the buffer may have been rotated before it was bound.
        self.use_batch(batch_number(arrays))

    def use_batch(self, number: int) -> None:
        """Switch to a batch of the buffer."""
        # Copied to attributes of this object, which saves a look-up in each row.
        batch = self._batches.at(number)
        self.batch = number
        self.observation, self.single = batch.observation, batch.single
        self.results, self.flags = batch.results, batch.flags
        self.agent_info, self.cells = batch.agent_info, batch.cells
        self.action, self.read_actions = batch.action, batch.read_actions
        if self.env_info is not None:
            self.env_info.rows = batch.env_info

    def release(self) -> None:
        """Drop the views; the rows cannot be used afterwards."""
        # Breaks a reference cycle that would keep the buffer alive until the next garbage collection.
        del self._batches

    def _views_of(self, number: int) -> _BatchViews:
        observation = [(path, leaf.of(number)) for path, leaf in self._observation]
        # Readers are made per batch, as they hold views of its rows.
        nested = _nested_of(self._nested_action, number)
        make_reader = stack_rows_reader if self._stacked else action_reader
        return _BatchViews(
            observation,
            observation[0][1] if self._single else None,
            # Grouped by row, as reward and flags of a row are written together.
            list(zip(*(leaf.of(number) for leaf in self._results), strict=True)),
            self._flags.of(number),
            [leaf.of(number) for _, leaf in self._infos],
            _nested_of(self._agent_info, number),
            _cells_of(observation[0][1], self.hi - self.lo) if self._has_cells else None,
            [(path, leaf.of(number)) for path, leaf in self._action],
            None if nested is None else make_reader(self._action_space, nested, raw=self._raw),
        )

    def _bind_one(self, array: Array, n_rows: int, name: str) -> LeafRows:
        leaf = LeafRows(name, array, slice(self.lo, self.hi), n_rows)
        # Recorded for main, which checks that a worker's views lie where they should.
        self.leaves.append(leaf)
        return leaf

    def _bind(self, tree: Tree, n_rows: int, name: str) -> list[tuple[Path, LeafRows]]:
        return [
            (path, self._bind_one(leaf, n_rows, dotted(path, name)))
            for path, leaf in leaf_paths(tree)
        ]

    def _bind_nested(self, tree: Tree, name: str) -> Any:
        if tree is None:
            return None
        # Nested, not a list of leaves: readers of actions and TrajInfos need the tree.
        if isinstance(tree, Array):
            return self._bind_one(tree, self.T, name)
        return {
            field: self._bind_nested(value, f"{name}.{field}")
            for field, value in tree._asdict().items()
        }

    def write_observation(self, t: int, i: int, observation: Tree) -> None:
        """Write the observation of environment i to row `t`."""
        if self.single is not None:
            self.single[t][i] = observation
            return
        for path, rows in self.observation:
            leaf = part_at(observation, path)
            if leaf is None:  # numpy would write NaN
                raise TypeError(f"observation.{dotted(path)}: expected numbers, got None")
            # Shapes are not checked: this runs in every step, and they were in the first episode.
            rows[t][i] = leaf

    def write_observations(self, t: int, observations: Tree) -> None:
        """Write the observations of all environments, [n, ...], to row `t`."""
        if self.single is not None:
            self.single[t][...] = observations
            return
        for path, rows in self.observation:
            rows[t][...] = part_at(observations, path)

    def write_some(self, t: int, which: NDArray[np.intp], observations: Tree) -> None:
        """Write the observations of some environments, [len(which), ...], to row `t`."""
        for path, rows in self.observation:
            row, values = rows[t], part_at(observations, path)
            if isinstance(row, np.ndarray):
                row[which] = values
                continue
            # A writer of frame stacks, which takes one environment at a time.
            for i, value in zip(which.tolist(), values, strict=True):
                row[i] = value

    def write_results(
        self, t: int, reward: NDArray[np.float64], ended: Sequence[tuple[int, bool, bool]]
    ) -> None:
        """Write reward and flags of row `t`.

        ended: (environment, terminated, truncated) of each ended episode.
        """
        rewards, terminations, truncations, dones = self.results[t]
        rewards[...] = reward
        # Clears flags of an earlier batch, all at once, as in most rows no episode ends.
        for flags in self.flags[t]:
            flags.fill(False)
        for i, terminated, truncated in ended:
            terminations[i], truncations[i], dones[i] = terminated, truncated, True

    def write_stack(
        self,
        t: int,
        reward: NDArray[np.float64],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        done: NDArray[np.bool_],
    ) -> None:
        """Write reward and flags of all environments, [n] each, to row `t`."""
        rewards, terminations, truncations, dones = self.results[t]
        rewards[...] = reward
        terminations[...] = terminated
        truncations[...] = truncated
        dones[...] = done

    def write_part(
        self,
        t: int,
        rewards: Sequence[Any],
        ended: Sequence[tuple[int, bool, bool]],
        failed: int | None,
    ) -> None:
        """Write the valid part of row `t` after environment `failed` raised; its cells are not written.

        If it failed in the reset after the end of an episode, its step is valid and is written too.

        Where no step was taken (None), the reward becomes NaN, so that a value from an earlier
        batch is not mistaken for a reward of this row. A reward that is not a number is not
        written.
        """
        ends = {i: (terminated, truncated) for i, terminated, truncated in ended}
        row, *flags = self.results[t]
        for i, reward in enumerate(rewards):
            if i == failed and i not in ends:
                continue
            if reward is None:
                _disown(row, i)
            elif is_number(reward):
                row[i] = reward
            else:
                continue  # not a number either, besides the one that the error names
            # Also clears flags of environments that were not stepped, which may be from an earlier batch.
            values = (*ends.get(i, (False, False)), i in ends)
            for flag, value in zip(flags, values, strict=True):
                flag[i] = value

    def write_loss(self, t: int) -> None:
        """Write a row without steps, in which the episodes of all environments were lost."""
        rewards, terminations, truncations, dones = self.results[t]
        for row in (rewards, terminations, truncations):
            row[...] = 0
        dones[...] = True
        if self.env_info is not None:
            for rows in self.env_info.rows:
                rows[t][...] = 0

    def clear_observation(self, t: int, i: int) -> None:
        """Write zeros in place of an observation."""
        # Not NaN, which integers do not have, and which networks propagate.
        for _, rows in self.observation:
            rows[t][i] = 0

    def agent_info_of(self, t: int, i: int) -> Tree:
        """Return a copy of the agent_info of one cell."""
        return _cell(self.agent_info, t, i)

    def write_action(self, t: int, i: int, action: Any) -> None:
        """Write an action sampled from the environment's space."""
        # Not clipped, unlike an agent's: spaces sample within their bounds.
        for path, rows in self.action:
            rows[t][i] = part_at(action, path)


def disown(reward: Array, t: int, columns: slice) -> None:
    """Write NaN in place of the unknown rewards of row `t`."""
    _disown(np.asarray(reward[t]), columns)


def _disown(row: NDArray[Any], location: int | slice) -> None:
    if row.dtype.kind == "f":  # integers have no NaN
        row[location] = np.nan


def _nested_of(node: Any, number: int) -> Any:
    if isinstance(node, dict):
        return {name: _nested_of(part, number) for name, part in node.items()}
    return None if node is None else node.of(number)


def _cells_of(rows: Sequence[Any], n: int) -> list[list[NDArray[Any]]]:
    """Return views of the `n` cells of each row, also where a cell is a single number."""
    # For rows of single numbers, `list` would give copies instead of views.
    if isinstance(rows[0], np.ndarray) and rows[0].ndim > 1:
        return [list(row) for row in rows]  # twice as fast as indexing
    return [[row[i, ...] for i in range(n)] for row in rows]


def _cell(node: Any, t: int, i: int) -> Tree:
    if isinstance(node, dict):
        return NamedTuple(**{name: _cell(part, t, i) for name, part in node.items()})
    # Copied: a TrajInfo may keep it, and the next batch overwrites the cell.
    return np.array(node[t][i])


def cage_part(samples: Samples, *, agent_info: bool = False) -> tuple[Tree, dict[str, Tree]]:
    """Return the action buffer and the fields of `samples.env` that a cage writes.

    agent_info: whether to add the agent's `agent_info`, for TrajInfos with `see_agent_info`.

    Raises:
        TypeError: if `samples` is not a buffer of samples.
    """
    # By class, not by fields: samplers and transforms rely on the classes.
    if not isinstance(samples, Samples) or not isinstance(samples.env, EnvSamples):
        raise TypeError(f"samples: expected Samples(agent, env), got {type(samples).__name__}")
    # Workers receive only these: other fields may be in local memory, or belong to transforms.
    fields = {name: getattr(samples.env, name) for name in CAGE_FIELDS}
    if "env_info_default" in samples.env._fields:
        fields["env_info_default"] = samples.env.env_info_default
    if agent_info and getattr(samples.agent, "agent_info", None) is not None:
        fields["agent_info"] = samples.agent.agent_info
    return samples.agent.action, fields


def _check(buffer: Tree, example: Tree, what: str) -> None:
    """Check a buffer against an example of one cell, leaf by leaf. Raises ValueError."""
    parts = parts_of(example)
    # As sets: fields are written by name, so their order does not matter.
    if parts is not None:
        if not isinstance(buffer, NamedArrayTuple) or set(buffer._fields) != set(parts):
            raise ValueError(f"{what}: expected fields {sorted(parts)}, got {buffer!r}")
        for name, part in parts.items():
            _check(getattr(buffer, name), part, f"{what}.{name}")
        return
    # Dtypes are not compared: buffers may be narrower than spaces, and numpy casts on writing.
    expected = np.shape(example)
    if not isinstance(buffer, Array) or buffer.shape[2:] != expected:
        raise ValueError(f"{what}: expected an Array [T, B, *{list(expected)}], got {buffer!r}")
