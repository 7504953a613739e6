"""The memory of a fragment that is not full yet.

Observations have one row more than the rest: row t + 1, the observation after step t, is where the next step
is going to read what its action answers, so each observation is copied once.

    observation   o0 o1 o2 .. oL      o0 with the first step, o(t+1) with step t
    all else      s0 s1 .. s(L-1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers import NamedTuple, buffer_leaves, named_map, parts_of
from parllel.rollouts.sample_fragment import SampleFragment
from parllel.types import Tree

# All that has a row for each step, besides the observations and what the fragment itself counts.
FIELDS = (
    "env.reward",
    "env.terminated",
    "env.truncated",
    "env.env_info",
    "agent.action",
    "agent.agent_info",
    "agent.observation",
)


class RunningFragment:
    """Rows of one environment, written one by one or several at a time, that become a SampleFragment.

    Args:
        length: most rows.
        observation: an example.
        fields: examples by the names of `FIELDS`; None for what is not stored.
        cell: number of dimensions of the examples that are no part of a cell: 0 for those of a step, 2 for
            [T, B, ...].
        initial_rnn_state: recurrent state before step 0 [...], None if there is none.

    Attributes:
        rows: how many have been written.
        final_observations: last observations of truncated episodes, by row.
    """

    def __init__(
        self,
        length: int,
        observation: Tree,
        fields: Mapping[str, Tree],
        *,
        cell: int,
        initial_rnn_state: Tree = None,
    ) -> None:
        def make(tree: Tree, rows: int) -> Tree:
            return named_map(lambda example: _zeros(rows, example, cell), tree)

        self.rows = 0
        self.final_observations: dict[int, Tree] = {}
        self._length = length
        self._observation = make(observation, length + 1)
        self._fields = {name: make(fields[name], length) for name in FIELDS}
        self._first = np.zeros(length, bool)
        self._version = np.zeros(length, np.int64)
        self._initial_rnn_state = copied(initial_rnn_state)

    @property
    def full(self) -> bool:
        """Whether no row is left."""
        return self.rows == self._length

    @property
    def left(self) -> int:
        """How many rows are left."""
        return self._length - self.rows

    @property
    def oldest_version(self) -> int:
        """The lowest version so far; there must be a row."""
        return int(self._version[: self.rows].min())

    def put_step(
        self, before: Tree, after: Tree, fields: Mapping[str, Tree], *, first: bool, version: int
    ) -> None:
        """Write one row.

        before, after: observations before and after the step; `before` is read where no row leads to it.

        Raises:
            ValueError: if names or shapes are not those of the first row, or a type does not fit.
        """
        row = self.rows
        if row == 0 or first:
            _write(self._observation, row, before, "env.observation")
        _write(self._observation, row + 1, after, "env.observation")
        for name, target in self._fields.items():
            _write(target, row, fields[name], name)
        self._first[row] = first
        self._version[row] = version
        self.rows += 1

    def put_rows(
        self,
        observation: Tree,
        fields: Mapping[str, Tree],
        place: tuple[slice, int],
        *,
        first: NDArray[np.bool_],
        version: int,
    ) -> None:
        """Write some rows of a batch.

        observation: [T + 1, B, ...].  fields: [T, B, ...].  place: rows and column in them.
        first: of these rows.
        """
        rows, column = place
        begin, end = self.rows, self.rows + rows.stop - rows.start
        # With that of the row before, which is there already unless the fragment begins here.
        _copy(
            self._observation,
            slice(begin, end + 1),
            observation,
            (slice(rows.start, rows.stop + 1), column),
        )
        for name, target in self._fields.items():
            _copy(target, slice(begin, end), fields[name], place)
        self._first[begin:end] = first
        self._version[begin:end] = version
        self.rows = end

    def finish(
        self, key: tuple[str, int, int, int], *, aborted: bool, padded: bool
    ) -> SampleFragment:
        """Return the fragment, to which the memory belongs from now on.

        aborted: whether the episode broke off after the last row.
        padded: keep the rows that are left and mark the others in `env.valid`.
        """
        n = self.rows
        kept = self._length if padded else n
        fields = {
            name: named_map(lambda leaf: leaf[:kept], tree) for name, tree in self._fields.items()
        }
        env = {
            "observation": named_map(lambda leaf: leaf[:kept], self._observation),
            **_below("env", fields),
            "done": fields["env.terminated"] | fields["env.truncated"],
            "first": self._first[:kept],
            "aborted": np.zeros(kept, bool),
            "version": self._version[:kept],
        }
        env["aborted"][n - 1] = aborted
        if padded:
            env["valid"] = np.arange(kept) < n
        agent = _below("agent", fields)
        if agent["observation"] is None:
            del agent["observation"]
        if self._initial_rnn_state is not None:
            agent["initial_rnn_state"] = self._initial_rnn_state
        next_observation = named_map(lambda leaf: leaf[n, ...], self._observation)
        for tree in (env, agent, next_observation, list(self.final_observations.values())):
            for _, leaf in buffer_leaves(tree):
                leaf.flags.writeable = False
        producer, environment, epoch, sequence = key
        return SampleFragment(
            NamedTuple(**env),
            NamedTuple(**agent),
            next_observation,
            producer=producer,
            environment=environment,
            epoch=epoch,
            sequence=sequence,
            final_observations=self.final_observations,
        )


def copied(tree: Tree) -> Tree:
    """Return a tree of arrays that own their memory."""
    return named_map(lambda leaf: np.array(leaf), tree)


def _below(node: str, fields: Mapping[str, Tree]) -> dict[str, Any]:
    start = f"{node}."
    return {
        name.removeprefix(start): tree for name, tree in fields.items() if name.startswith(start)
    }


def _zeros(rows: int, example: Any, cell: int) -> NDArray[Any]:
    array = np.asarray(example)
    # As everywhere else numbers of Python, which have no type of their own, are stored as float32.
    dtype = np.dtype(np.float32) if type(example) is float else array.dtype
    return np.zeros((rows, *array.shape[cell:]), dtype)


def _write(target: Tree, row: int, value: Tree, name: str) -> None:
    """Write the value of one step to a row of each leaf."""
    if isinstance(target, np.ndarray):
        array = np.asarray(value)
        # numpy would broadcast a wrong shape over the row, and cut fractions off for an integer.
        fits = array.dtype == target.dtype or np.can_cast(array.dtype, target.dtype, "same_kind")
        if array.shape != target.shape[1:] or not fits:
            raise ValueError(
                f"{name}: expected {target.dtype} {list(target.shape[1:])} as in the first step of the "
                f"fragment, got {array.dtype} {list(array.shape)}"
            )
        target[row] = array
        return
    for part, below, given in _pairs(target, value, name):
        _write(below, row, given, f"{name}.{part}")


def _copy(target: Tree, rows: slice, source: Tree, place: tuple[slice, int]) -> None:
    """Copy rows of a column [T, B, ...] to rows of each leaf."""
    if isinstance(target, np.ndarray):
        target[rows] = source[place]
        return
    for _, below, given in _pairs(target, source, ""):
        _copy(below, rows, given, place)


def _pairs(target: Tree, value: Tree, name: str) -> list[tuple[str, Tree, Tree]]:
    if target is None and value is None:
        return []
    parts = parts_of(value)
    expected = None if target is None else target._asdict()
    if expected is None or parts is None or set(parts) != set(expected):
        wanted = "nothing" if expected is None else f"the fields {sorted(expected)}"
        came = type(value).__name__ if parts is None else f"{sorted(parts)}"
        raise ValueError(
            f"{name}: expected {wanted}, as in the first step of the fragment, got {came}"
        )
    return [(part, below, parts[part]) for part, below in expected.items()]
