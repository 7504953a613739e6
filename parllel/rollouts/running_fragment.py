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

from parllel.buffers import NamedTuple, named_map
from parllel.rollouts.fragment_layout import FIELDS, OBSERVATION, FragmentLayout
from parllel.rollouts.sample_fragment import FragmentKey, SampleFragment
from parllel.types import Tree

_ENV = [name for name in FIELDS if name.startswith("env.") and name != OBSERVATION]


class RunningFragment:
    """Rows of one environment, written one by one or several at a time, that become a SampleFragment.

    Args:
        layout: what a row consists of.
        length: most rows.
        padded: whether the fragment has `length` rows however many are written, the others zero.
        initial_rnn_state: recurrent state before step 0 [...], None if there is none.

    Attributes:
        rows: how many have been written.
        final_observations: last observations of truncated episodes, by row.
    """

    def __init__(
        self, layout: FragmentLayout, length: int, *, padded: bool, initial_rnn_state: Tree = None
    ) -> None:
        # Nothing is read that was not written, unless there is padding.
        make = np.zeros if padded else np.empty
        seen, layout_cells = layout.n_observation, layout.cells
        self._observed = [make((length + 1, *shape), dtype) for shape, dtype in layout_cells[:seen]]
        self._others = [make((length, *shape), dtype) for shape, dtype in layout_cells[seen:]]
        self._first = make(length, bool)
        self._version = make(length, np.int64)
        self._layout, self._length, self._padded = layout, length, padded
        self._initial_rnn_state = copied(initial_rnn_state)
        self.rows = 0
        self.final_observations: dict[int, Tree] = {}

    @property
    def left(self) -> int:
        """How many rows are left."""
        return self._length - self.rows

    @property
    def oldest_version(self) -> int:
        """The lowest version so far; there must be a row."""
        return int(self._version[: self.rows].min())

    def put_step(
        self, leaves: Sequence[Any], after: Sequence[Any], *, first: bool, version: int
    ) -> None:
        """Write one row.

        leaves: of the step.  after: of the observation that follows it.

        Raises:
            ValueError: if a shape or a type does not fit.
        """
        row, seen, check = self.rows, len(self._observed), self._layout.check
        for i, target in enumerate(self._observed):
            # Elsewhere the step before has written it.
            if row == 0 or first:
                target[row] = check(i, leaves[i])
            target[row + 1] = check(i, after[i])
        for i, target in enumerate(self._others, start=seen):
            target[row] = check(i, leaves[i])
        self._first[row] = first
        self._version[row] = version
        self.rows += 1

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

        leaves: [T, B, ...], those of the observation [T + 1, B, ...].  first: of these rows.
        """
        begin, seen = self.rows, len(self._observed)
        end = begin + rows.stop - rows.start
        for target, source in zip(self._observed, leaves[:seen], strict=True):
            # With that of the row before, which is there already unless the fragment begins here.
            target[begin : end + 1] = source[rows.start : rows.stop + 1, column]
        for target, source in zip(self._others, leaves[seen:], strict=True):
            target[begin:end] = source[rows, column]
        self._first[begin:end] = first
        self._version[begin:end] = version
        self.rows = end

    def finish(self, key: FragmentKey, *, aborted: bool, incarnation: str = "") -> SampleFragment:
        """Return the fragment, to which the memory belongs from now on.

        aborted: whether the episode broke off after the last row.  incarnation: of the producer.
        """
        n = self.rows
        kept = self._length if self._padded else n
        # Made before the observations are cut to as many rows as the rest.
        after = [_kept(leaf[n, ...]) for leaf in self._observed]
        leaves = [_kept(leaf[:kept]) for leaf in (*self._observed, *self._others)]
        tree = self._layout.tree
        env = {name.removeprefix("env."): tree(name, leaves) for name in _ENV}
        broken = np.zeros(kept, bool)
        broken[n - 1] = aborted
        env.update(
            observation=tree(OBSERVATION, leaves),
            done=_kept(env["terminated"] | env["truncated"]),
            first=_kept(self._first[:kept]),
            aborted=_kept(broken),
            version=_kept(self._version[:kept]),
        )
        if self._padded:
            env["valid"] = _kept(np.arange(kept) < n)
        agent = {
            "action": tree("agent.action", leaves),
            "agent_info": tree("agent.agent_info", leaves),
        }
        optional = {
            "observation": tree("agent.observation", leaves),
            "initial_rnn_state": self._initial_rnn_state,
        }
        agent.update({name: value for name, value in optional.items() if value is not None})
        producer, environment, epoch, sequence = key
        return SampleFragment(
            NamedTuple(**env),
            NamedTuple(**agent),
            tree(OBSERVATION, after),
            producer=producer,
            environment=environment,
            epoch=epoch,
            sequence=sequence,
            final_observations=self.final_observations,
            incarnation=incarnation,
        )


def copied(tree: Tree) -> Tree:
    """Return a tree of read-only arrays that own their memory."""
    return named_map(lambda leaf: _kept(np.array(leaf)), tree)


def _kept(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, read-only from now on: several readers may share it."""
    array.flags.writeable = False
    return array
