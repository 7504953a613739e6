"""The memory of an unfinished fragment.

Observations have one more row than other fields. Row t + 1, the observation after step t, is also the one
before the action of the next step, so each observation is copied only once.

    observation   o0 o1 o2 .. oL      o0 with the first step, o(t+1) with step t
    all else      s0 s1 .. s(L-1)
"""

# One thread writes the rows. From `finish` on nobody writes, and any number of threads may read.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.paths import parts_of
from parllel.buffers.tree import named_map
from parllel.distributed.rollouts.fragments.sample_fragment import FragmentKey, SampleFragment
from parllel.types import Tree

OBSERVATION = "env.observation"
# The fields of steps. Fragments add some of their own.
FIELDS = (
    OBSERVATION,
    "env.reward",
    "env.terminated",
    "env.truncated",
    "env.env_info",
    "agent.action",
    "agent.agent_info",
    "agent.observation",
)
# Index of a leaf in the list, the indices below a node, or None where nothing is stored.
_Places: TypeAlias = "int | dict[str, _Places] | None"


class FragmentLayout:
    """Names, shapes and dtypes of all leaves, taken from an example of each field.

    Walking the trees costs more than copying the few numbers of a step, so it is done once per
    source instead of once per fragment.

    Args:
        fields: example values, keyed by the names in `FIELDS`. None for fields that are not stored.
        cell: number of leading (time and batch) dimensions of each example: 0 for a step, 2 for [T,
            B, ...].
        length: maximum number of rows of a fragment.

    Attributes:
        length: maximum number of rows.
        paths: paths of the leaves, beginning with those of the observation.
        cells: shape and dtype of each leaf in a single step.
        n_observation: number of leaves of an observation.
        memory: shape and dtype of each leaf of a fragment, with one more row for observations.
    """

    def __init__(self, fields: Mapping[str, Tree], cell: int, length: int) -> None:
        # Nothing changes after this method, so all fragments of a cutter share one layout.
        self.length = length
        self.paths: list[str] = []
        self.cells: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        self._places = {name: self._place(fields[name], name, cell) for name in FIELDS}
        observed = [path for path in self.paths if path.split(".")[:2] == OBSERVATION.split(".")]
        self.n_observation = len(observed)
        self.memory = [
            ((length + (i < self.n_observation), *shape), dtype)
            for i, (shape, dtype) in enumerate(self.cells)
        ]
        # By their names in the nodes `env` and `agent` of a fragment.
        self._env, self._agent = (
            {
                name.removeprefix(node): self._places[name]
                for name in FIELDS
                if name.startswith(node)
            }
            for node in ("env.", "agent.")
        )

    def _place(self, example: Tree, path: str, cell: int) -> _Places:
        if example is None:
            return None
        parts = parts_of(example)
        if parts is not None:
            return {name: self._place(part, f"{path}.{name}", cell) for name, part in parts.items()}
        array = np.asarray(example)
        # As everywhere, Python floats, which have no numpy dtype, are stored as float32.
        dtype = np.dtype(np.float32) if type(example) is float else array.dtype
        self.paths.append(path)
        self.cells.append((array.shape[cell:], dtype))
        return len(self.paths) - 1

    def leaves_of(self, fields: Mapping[str, Tree]) -> list[Any]:
        """Return the leaves of `fields`, in the order of `paths`.

        Raises:
            ValueError: if `fields` does not have the structure of the examples.
        """
        leaves: list[Any] = []
        for name, places in self._places.items():
            _collect(places, fields[name], name, leaves)
        return leaves

    def observation_of(self, observation: Tree) -> list[Any]:
        """Return the leaves of an observation, like `leaves_of`."""
        leaves: list[Any] = []
        _collect(self._places[OBSERVATION], observation, OBSERVATION, leaves)
        return leaves

    def check(self, i: int, value: Any) -> NDArray[Any]:
        """Return the value of leaf `i` in one step as an array.

        Raises:
            ValueError: if its shape differs from the example, or its dtype is of another kind.
        """
        array = np.asarray(value)
        shape, dtype = self.cells[i]
        # numpy would broadcast a wrong shape over the row, and truncate fractions to integers.
        fits = array.dtype == dtype or np.can_cast(array.dtype, dtype, "same_kind")
        if array.shape != shape or not fits:
            raise ValueError(
                f"{self.paths[i]}: expected {dtype} {list(shape)} as in the first step, got "
                f"{array.dtype} {list(array.shape)}"
            )
        return array

    def observation(self, leaves: Sequence[NDArray[Any]]) -> Tree:
        """Build an observation from a list that begins with its leaves."""
        return _tree(self._places[OBSERVATION], leaves)

    def env(self, leaves: Sequence[NDArray[Any]]) -> dict[str, Tree]:
        """Build the fields of `env` from a list of all leaves."""
        return {name: _tree(places, leaves) for name, places in self._env.items()}

    def agent(self, leaves: Sequence[NDArray[Any]]) -> dict[str, Tree]:
        """Build the fields of `agent` from a list of all leaves."""
        return {name: _tree(places, leaves) for name, places in self._agent.items()}


def _collect(places: _Places, tree: Tree, path: str, leaves: list[Any]) -> None:
    if isinstance(places, int):
        leaves.append(tree)
        return
    parts = None if tree is None else parts_of(tree)
    if places is None:
        if tree is None:
            return
    elif parts is not None and parts.keys() == places.keys():
        for name, below in places.items():
            _collect(below, parts[name], f"{path}.{name}", leaves)
        return
    expected = "nothing" if places is None else f"the fields {sorted(places)}"
    got = type(tree).__name__ if parts is None else f"the fields {sorted(parts)}"
    raise ValueError(f"{path}: expected {expected} as in the first step, got {got}")


def _tree(places: _Places, leaves: Sequence[NDArray[Any]]) -> Tree:
    if isinstance(places, int):
        return leaves[places]
    if places is None:
        return None
    return NamedTuple(**{name: _tree(below, leaves) for name, below in places.items()})


class RunningFragment:
    """Rows of one environment, written singly or in blocks, that become a SampleFragment.

    Args:
        layout: leaves of a row, and maximum number of rows.
        padded: True if the fragment always has the maximum number of rows, padded with zeros.
        initial_rnn_state: recurrent state [...] before step 0, or None if there is none.

    Attributes:
        rows: number of rows written.
        final_observations: final observations of truncated episodes, keyed by row.
    """

    def __init__(
        self, layout: FragmentLayout, *, padded: bool, initial_rnn_state: Tree = None
    ) -> None:
        self._layout, self._padded = layout, padded
        # Copied, because the group or the sampler overwrites it with its next step or batch.
        self._initial_rnn_state = None if initial_rnn_state is None else copied(initial_rnn_state)
        # Allocated with the first row.
        self._leaves: list[NDArray[Any]] = []
        # Exist from the first row on, which `oldest_version` requires.
        self._first: NDArray[np.bool_]
        self._version: NDArray[np.int64]
        self.rows = 0
        self.final_observations: dict[int, Tree] = {}

    @property
    def left(self) -> int:
        """Number of rows left."""
        return self._layout.length - self.rows

    @property
    def oldest_version(self) -> int:
        """The lowest version so far. Requires at least one row."""
        return int(self._version[: self.rows].min())

    def _allocate(self) -> None:
        # Zeros are needed for padding only; otherwise every cell is written before it is read.
        # New memory for each fragment, as the one before may still be in a queue.
        make = np.zeros if self._padded else np.empty
        self._leaves = [make(shape, dtype) for shape, dtype in self._layout.memory]
        self._first = make(self._layout.length, bool)
        self._version = make(self._layout.length, np.int64)

    def put_step(
        self, leaves: Sequence[Any], after: Sequence[Any], *, first: bool, version: int
    ) -> None:
        """Write one row.

        leaves: leaves of the step.
        after: leaves of the observation after the step.

        Raises:
            ValueError: if a shape or dtype does not fit.
        """
        row, seen, check = self.rows, self._layout.n_observation, self._layout.check
        if not self._leaves:
            self._allocate()
        # `rows` is counted last: if a leaf is refused, the next step overwrites this row.
        for i, target in enumerate(self._leaves):
            # In all other cases the step before has written the observation.
            if i >= seen or row == 0 or first:
                target[row] = check(i, leaves[i])
            if i < seen:
                target[row + 1] = check(i, after[i])
        self._first[row] = first
        self._version[row] = version
        self.rows += 1

    def put_row(
        self, leaves: Sequence[NDArray[Any]], t: int, column: int, *, first: bool, version: int
    ) -> None:
        """Write one row of a buffer, and the observation after it.

        leaves: as for `put_rows`.
        """
        if not self._leaves:
            self._allocate()
        row, seen = self.rows, self._layout.n_observation
        # Unchecked, as this runs for every step: `leaves_of` has compared the structure once.
        for target, source in zip(self._leaves, leaves, strict=True):
            target[row] = source[t, column]
        # The cage wrote row t + 1 before it answered.
        for target, source in zip(self._leaves[:seen], leaves[:seen], strict=True):
            target[row + 1] = source[t + 1, column]
        self._first[row] = first
        self._version[row] = version
        self.rows += 1

    def put_after(self, observation: Tree) -> None:
        """Overwrite the observation after the last row."""
        after = self._layout.observation_of(observation)
        for i, (target, leaf) in enumerate(zip(self._leaves[: len(after)], after, strict=True)):
            # There is always such a row, because observations have one more than the other fields.
            target[self.rows] = self._layout.check(i, leaf)

    def put_rows(
        self,
        leaves: Sequence[NDArray[Any]],
        column: int,
        rows: slice,
        *,
        first: NDArray[np.bool_],
        version: int,
    ) -> None:
        """Write several rows of a batch.

        leaves: arrays [T, B, ...], or [T + 1, B, ...] for observations.
        first: bool array [T, B], see `SampleFragment`.
        """
        seen, n = self._layout.n_observation, rows.stop - rows.start
        # One more row of observations; the first is already there unless the fragment begins here.
        observed, others = (slice(rows.start, rows.stop + 1), column), (rows, column)
        sources = [leaf[observed] for leaf in leaves[:seen]]
        sources += [leaf[others] for leaf in leaves[seen:]]
        # Only a fragment without rows has room for so many, so nothing is replaced. The sources are
        # views of the sampler's batch, and are copied once in any case.
        if n == self._layout.length:
            self._leaves = [source.copy() for source in sources]
            self._first, self._version = first[others].copy(), np.full(n, version, np.int64)
            self.rows = n
            return
        if not self._leaves:
            self._allocate()
        begin = self.rows
        self.rows = end = begin + n
        for target, source in zip(self._leaves, sources, strict=True):
            target[begin : begin + len(source)] = source
        self._first[begin:end] = first[others]
        self._version[begin:end] = version

    def finish(self, key: FragmentKey, *, aborted: bool, instance_id: str = "") -> SampleFragment:
        """Return the fragment, which then owns the memory.

        aborted: True if the episode broke off after the last row.
        instance_id: identifies the producer.
        """
        n, layout = self.rows, self._layout
        kept = layout.length if self._padded else n
        # Taken before observations are cut to the number of rows of the other fields.
        # With `...`, so that a scalar stays an array, which can be made read-only.
        after = [leaf[n, ...] for leaf in self._leaves[: layout.n_observation]]
        # Views: a fragment that was broken off keeps the memory of a whole one.
        leaves = [leaf[:kept] for leaf in self._leaves]
        env, agent = layout.env(leaves), layout.agent(leaves)
        env.update(
            done=env["terminated"] | env["truncated"],
            first=self._first[:kept],
            aborted=np.zeros(kept, bool),
            version=self._version[:kept],
        )
        env["aborted"][n - 1] = aborted
        own = [env[name] for name in ("done", "first", "aborted", "version")]
        if self._padded:
            env["valid"] = np.arange(kept) < n
            own.append(env["valid"])
        # Sender, storage and trainer may hold the fragment at the same time, and the storage may
        # give it out several times.
        for array in (*after, *leaves, *own):
            array.setflags(write=False)
        if agent["observation"] is None:
            del agent["observation"]
        if self._initial_rnn_state is not None:
            agent["initial_rnn_state"] = self._initial_rnn_state
        # With `final_observations`, which nobody changes any more: the cutter drops this object.
        return SampleFragment(
            NamedTuple(**env),
            NamedTuple(**agent),
            layout.observation(after),
            *key,
            final_observations=self.final_observations,
            instance_id=instance_id,
        )


def copied(tree: Tree) -> Tree:
    """Return a tree of read-only arrays that own their memory."""
    return named_map(_copied, tree)


def _copied(leaf: Any) -> NDArray[Any]:
    array = np.array(leaf)
    # Read-only, as several readers may share it.
    array.setflags(write=False)
    return array
