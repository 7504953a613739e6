"""The memory of a fragment that is not full yet.

Observations have one row more than the rest: row t + 1, the observation after step t, is where the next step
is going to find what its action answers, so each observation is copied once.

    observation   o0 o1 o2 .. oL      o0 with the first step, o(t+1) with step t
    all else      s0 s1 .. s(L-1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.tree import named_map
from parllel.distributed.rollouts.fragments.fragment_layout import FragmentLayout
from parllel.distributed.rollouts.fragments.sample_fragment import FragmentKey, SampleFragment
from parllel.types import Tree


class RunningFragment:
    """Rows of one environment, written one by one or several at a time, that become a SampleFragment.

    Args:
        layout: what a row consists of, and how many there are at most.
        padded: whether the fragment has as many rows however many are written, the others zero.
        initial_rnn_state: recurrent state before step 0 [...], None if there is none.

    Attributes:
        rows: how many have been written.
        final_observations: last observations of truncated episodes, by row.
    """

    def __init__(
        self, layout: FragmentLayout, *, padded: bool, initial_rnn_state: Tree = None
    ) -> None:
        self._layout, self._padded = layout, padded
        self._initial_rnn_state = None if initial_rnn_state is None else copied(initial_rnn_state)
        # Made with the first row.
        self._leaves: list[NDArray[Any]] = []
        self._first: NDArray[np.bool_]
        self._version: NDArray[np.int64]
        self.rows = 0
        self.final_observations: dict[int, Tree] = {}

    @property
    def left(self) -> int:
        """How many rows are left."""
        return self._layout.length - self.rows

    @property
    def oldest_version(self) -> int:
        """The lowest version so far; there must be a row."""
        return int(self._version[: self.rows].min())

    def _allocate(self) -> None:
        # Nothing is read that was not written, unless there is padding.
        make = np.zeros if self._padded else np.empty
        self._leaves = [make(shape, dtype) for shape, dtype in self._layout.memory]
        self._first = make(self._layout.length, bool)
        self._version = make(self._layout.length, np.int64)

    def put_step(
        self, leaves: Sequence[Any], after: Sequence[Any], *, first: bool, version: int
    ) -> None:
        """Write one row.

        leaves: of the step.  after: of the observation that follows it.

        Raises:
            ValueError: if a shape or a type does not fit.
        """
        row, seen, check = self.rows, self._layout.n_observation, self._layout.check
        if not self._leaves:
            self._allocate()
        for i, target in enumerate(self._leaves):
            # Elsewhere the step before has written the observation.
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
        for target, source in zip(self._leaves, leaves, strict=True):
            target[row] = source[t, column]
        for target, source in zip(self._leaves[:seen], leaves[:seen], strict=True):
            target[row + 1] = source[t + 1, column]
        self._first[row] = first
        self._version[row] = version
        self.rows += 1

    def put_after(self, observation: Tree) -> None:
        """Write another observation than the next one after the last row."""
        after = self._layout.observation_of(observation)
        for i, (target, leaf) in enumerate(zip(self._leaves[: len(after)], after, strict=True)):
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
        """Write some rows of a batch.

        leaves: [T, B, ...], those of the observation [T + 1, B, ...].  first: [T, B].
        """
        seen, n = self._layout.n_observation, rows.stop - rows.start
        # With the observation of the row before, which is there already unless the fragment begins here.
        observed, others = (slice(rows.start, rows.stop + 1), column), (rows, column)
        sources = [leaf[observed] for leaf in leaves[:seen]]
        sources += [leaf[others] for leaf in leaves[seen:]]
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

    def finish(self, key: FragmentKey, *, aborted: bool, incarnation: str = "") -> SampleFragment:
        """Return the fragment, to which the memory belongs from now on.

        aborted: whether the episode broke off after the last row.  incarnation: of the producer.
        """
        n, layout = self.rows, self._layout
        kept = layout.length if self._padded else n
        # Made before the observations are cut to as many rows as the rest.
        after = [leaf[n, ...] for leaf in self._leaves[: layout.n_observation]]
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
        for array in (*after, *leaves, *own):
            array.setflags(write=False)
        if agent["observation"] is None:
            del agent["observation"]
        if self._initial_rnn_state is not None:
            agent["initial_rnn_state"] = self._initial_rnn_state
        return SampleFragment(
            NamedTuple(**env),
            NamedTuple(**agent),
            layout.observation(after),
            *key,
            final_observations=self.final_observations,
            incarnation=incarnation,
        )


def copied(tree: Tree) -> Tree:
    """Return a tree of read-only arrays that own their memory."""
    return named_map(_copied, tree)


def _copied(leaf: Any) -> NDArray[Any]:
    array = np.array(leaf)
    # Several readers may share it.
    array.setflags(write=False)
    return array
