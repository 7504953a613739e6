"""A batch buffer whose columns are filled with fragments."""

# The fragments belong to the source, which may give them out again: they are only read here.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.buffers.allocation import add_fields
from parllel.buffers.batches import moving
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays, buffer_leaves, buffer_map
from parllel.distributed.rollouts.fragments.sample_fragment import SampleFragment
from parllel.types import BatchSpec, Tree

# Fields specific to fragments; samples of other samplers have at most the first.
_OWN: dict[str, Any] = {
    "env.valid": False,
    "env.first": False,
    "env.aborted": False,
    "env.version": np.int64(0),
}
_OBSERVATION, _SEEN, _STATE = "env.observation", "agent.observation", "agent.initial_rnn_state"
# Defaults are applied before fragments are cut, and are in the buffer from the start.
_CONSTANT = "env.env_info_default"


@dataclass(frozen=True)
class Cut:
    """The observation after row `row` of a column, where the episode is cut off and a value is needed."""

    row: int
    column: int
    observation: Tree


class FragmentBatch:
    """Copies fragments into the columns of a buffer, and marks padding.

    A fragment that is shorter than the batch ends like a truncated episode, with `env.truncated` and
    `env.done` set in its last row, unless its episode ended there. From there on `env.valid` is False, and
    all fields are zero except the first such row of `env.observation`, which holds the observation after the
    fragment.

    Args:
        samples: [T, B], as created by `allocate_samples`; `env.valid`, `env.first`, `env.aborted` and
            `env.version` are added if missing.
        batch_spec: T and B.

    Attributes:
        samples: the samples with these fields.

    Raises:
        ValueError: for a buffer of several batches or of stacked frames, or a field that neither fragments
            nor transforms fill.
    """

    def __init__(self, samples: Samples, batch_spec: BatchSpec) -> None:
        arrays = buffer_arrays(samples)
        if moving(arrays) or any(isinstance(array, LazyFramesArray) for array in arrays):
            raise ValueError(
                "samples: expected a buffer that holds one batch and whole observations; allocate "
                "it without n_batches, switching and frames"
            )
        there = dict(buffer_leaves(samples))
        missing = {path: value for path, value in _OWN.items() if path not in there}
        # Another tree over the same arrays, so the caller's `samples` show the batch as well.
        self.samples: Samples = add_fields(samples, missing, batch_spec, dtype=_types(missing))
        self._T, self._B = batch_spec.T, batch_spec.B
        # Only observations include the padding row.
        self._targets: dict[str, NDArray[Any]] = {}
        self._states: dict[str, NDArray[Any]] = {}
        # The workers' agent observations, if they differ from `env.observation`: copied after the transforms.
        self._seen: dict[str, NDArray[Any]] = {}
        # Computed fields, and rows T, all of which must be zero after the end of a short fragment.
        self._derived: list[NDArray[Any]] = []
        self._after: list[NDArray[Any]] = []
        self._sort(dict(buffer_leaves(self.samples)))
        self._observed = [path for path in self._targets if _below(path, _OBSERVATION)]

    def _sort(self, leaves: dict[str, Any]) -> None:
        raw = {leaf.block.key for path, leaf in leaves.items() if _below(path, _OBSERVATION)}
        for path, leaf in leaves.items():
            if not isinstance(leaf, Array) or _below(path, _CONSTANT):
                continue
            if _below(path, _OBSERVATION):
                self._targets[path] = np.asarray(leaf[0 : len(leaf) + 1])
                continue
            if _below(path, _SEEN):
                # The agent sees the raw observations, which are copied already.
                if leaf.block.key in raw:
                    continue
                self._seen[path] = np.asarray(leaf)
            if _below(path, _STATE):
                self._states[path] = np.asarray(leaf)
                continue
            if _below(path, "env.next_observation") or _below(path, "agent.noise"):
                raise ValueError(
                    f"samples: {path}: fragments do not fill this field; allocate the samples without it"
                )
            if leaf.padding:
                self._after.append(np.asarray(leaf[leaf.last + 1]))
            # `agent.observation` may have been allocated by hand, without a writer.
            if leaf.block.writer or path in self._seen:
                self._derived.append(np.asarray(leaf))
            else:
                self._targets[path] = np.asarray(leaf)

    def put(self, fragments: Sequence[SampleFragment]) -> list[Cut]:
        """Fill the columns with B fragments. Returns the observations whose values are needed, by row.

        Raises:
            ValueError: for a fragment with more than T rows, or with other fields than the samples.
        """
        # If a fragment is refused, earlier columns are filled: the next call overwrites them.
        cuts = []
        for column, fragment in enumerate(fragments):
            try:
                cuts += self._put(fragment, column)
            except ValueError as error:
                raise ValueError(f"{fragment!r}: {error}") from None
        # In the order of samplers, so that floating-point rounding is the same.
        return sorted(cuts, key=lambda cut: (cut.row, cut.column))

    def _put(self, fragment: SampleFragment, column: int) -> list[Cut]:
        n, T = fragment.n_steps, self._T
        if n > T:
            raise ValueError(f"expected at most T={T} steps; cut with fragment_length={T}")
        if ("observation" in fragment.agent._fields) is not bool(self._seen):
            with_or_without = "with" if self._seen else "without"
            raise ValueError(
                f"agent.observation: expected workers {with_or_without} step transforms, like the "
                "trainer's sampler; give both the same step transforms"
            )
        leaves = dict(buffer_leaves(NamedTuple(env=fragment.env, agent=fragment.agent)))
        # Only fragments of recurrent agents have the field.
        leaves["env.valid"] = np.ones(n, bool)
        for path, target in self._targets.items():
            leaf = _checked(path, leaves, target.shape[2:], target.dtype)
            target[:n, column] = leaf[:n]
            # Observations lose row n here, too, which is written below.
            target[n:, column] = 0
        for path, target in self._seen.items():  # before anything is transformed
            _checked(path, leaves, target.shape[2:], target.dtype)
        following = dict(buffer_leaves(fragment.next_observation, _OBSERVATION))
        for path in self._observed:
            target = self._targets[path]
            target[n, column] = _checked(path, following, target.shape[2:], target.dtype, rows=0)
        for path, target in self._states.items():
            target[0, column] = _checked(path, leaves, target.shape[2:], target.dtype, rows=0)
        return self._cuts(fragment, n, column)

    def _cuts(self, fragment: SampleFragment, n: int, column: int) -> list[Cut]:
        """Return where values of final observations are needed, and mark the end of a short fragment."""
        truncated, done = self._targets["env.truncated"], self._targets["env.done"]
        last = n - 1
        # Unless fragments end with their episodes, the next observation is a reset observation.
        episodic = "valid" in fragment.env._fields
        cuts = []
        # Before a short fragment is marked as truncated below: it has no final observation.
        for row in np.flatnonzero(truncated[:, column]).tolist():
            observation = fragment.final_observations.get(row)
            if observation is None and episodic:
                observation = fragment.next_observation
            if observation is None:
                raise ValueError(
                    f"final_observations: expected an observation for row {row}, which is truncated"
                )
            # Still the fragment's memory, of which `stacked` makes a copy.
            cuts.append(Cut(row, column, observation))
        if n < self._T and not done[last, column]:
            truncated[last, column] = done[last, column] = True
            cuts.append(Cut(last, column, fragment.next_observation))
        return cuts

    def write_seen_observations(self, fragments: Sequence[SampleFragment]) -> None:
        """Overwrite the agent's observations by those that the workers' agents received.

        The workers' log probabilities and values were computed from these observations, not from
        those computed with current statistics. Call this after the transforms.
        """
        for column, fragment in enumerate(fragments):
            leaves = dict(buffer_leaves(fragment.agent, "agent")) if self._seen else {}
            for path, target in self._seen.items():
                target[: fragment.n_steps, column] = leaves[path][: fragment.n_steps]

    @contextmanager
    def without(self, columns: Sequence[int]) -> Iterator[None]:
        """Set `env.valid` to False in some columns for the duration of a `with` block."""
        valid = self._targets["env.valid"]
        # A copy, because a list selects the columns. A view would be cleared, too.
        kept = valid[:, columns]
        valid[:, columns] = False
        try:
            yield
        finally:
            valid[:, columns] = kept

    def stacked(self, cuts: Sequence[Cut]) -> Tree:
        """Stack the observations of cuts into one tree [N, ...], with the dtypes of the samples."""
        return buffer_map(
            lambda array, *leaves: np.stack(leaves).astype(array.dtype, copy=False),
            self.samples.env.observation,
            *(cut.observation for cut in cuts),
        )

    def clear_rest(self) -> None:
        """Zero the values that transforms and the agent wrote after the end of short fragments."""
        valid = self._targets["env.valid"]
        # Steps fill a column from the top, so its last row shows whether it is short.
        short = ~valid[-1]
        if short.any():
            for field in self._derived:
                field[~valid] = 0
            for row in self._after:
                row[short] = 0


def _below(path: str, field: str) -> bool:
    return path == field or path.startswith(f"{field}.")


def _types(fields: dict[str, Any]) -> dict[str, Any]:
    # Otherwise versions would be stored in fewer bits.
    return {path: np.int64 for path in fields if path == "env.version"}


def _checked(
    path: str,
    leaves: dict[str, NDArray[Any]],
    cell: tuple[int, ...],
    dtype: np.dtype[Any],
    rows: int = 1,
) -> NDArray[Any]:
    """Return a leaf of a fragment, once validated.

    rows: number of leading row dimensions, 0 or 1.

    Raises:
        ValueError: if it is missing, or does not fit the samples.
    """
    leaf = leaves.get(path)
    if leaf is None:
        raise ValueError(f"expected the field {path}, which the samples have, got {sorted(leaves)}")
    # numpy would broadcast a wrong shape, and truncate fractions.
    if leaf.shape[rows:] != cell or not np.can_cast(leaf.dtype, dtype, "same_kind"):
        raise ValueError(
            f"{path}: expected {dtype} cells {list(cell)} as in the samples, got {leaf.dtype} "
            f"{list(leaf.shape[rows:])}"
        )
    return leaf
