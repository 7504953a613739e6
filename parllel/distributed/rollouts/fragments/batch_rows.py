"""A sampler's batch as numpy trees, from which fragments copy their rows."""

# Views of memory that the sampler overwrites with its next batch: what must last longer is copied.

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.buffers.batches import moving
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays, buffer_leaves, named_map
from parllel.distributed.rollouts.fragments.running_fragment import copied
from parllel.distributed.rollouts.step_record import StepRecord
from parllel.types import Tree


class BatchRows:
    """Views of a batch, or of all batches that fill the same memory.

    Args:
        samples: [T, B], with a padding row of observations.
        recurrent: True if the columns end with their episodes, as in RecurrentSampler.

    Attributes:
        samples: the samples.
        stays: True if the views remain valid for the next batch.
        fields: the fields that fragments store, arrays [T, B, ...] keyed by name. `env.observation`
            is [T + 1, B, ...].
        done, truncated: [T, B] bool.
        initial_rnn_state: [1, B, ...] or None.

    Raises:
        ValueError: if the samples lack a field that fragments need.
    """

    def __init__(self, samples: Samples, *, recurrent: bool) -> None:
        env, agent = samples.env, samples.agent
        self.samples = samples
        leaves = [leaf for _, leaf in buffer_leaves(samples)]
        # Stacks of lazy frames are assembled anew for each batch.
        self.stays = not moving(buffer_arrays(samples)) and all(
            isinstance(leaf, (Array, np.ndarray)) and not isinstance(leaf, LazyFramesArray)
            for leaf in leaves
        )
        self.done: NDArray[np.bool_] = np.asarray(env.done)
        self.truncated: NDArray[np.bool_] = np.asarray(env.truncated)
        self.T, self.B = self.done.shape
        self._check(samples, recurrent)
        self.fields = stored_fields(samples)
        self.initial_rnn_state = named_map(np.asarray, getattr(agent, "initial_rnn_state", None))
        self._valid = np.asarray(env.valid) if recurrent else None
        # Not for a recurrent agent, where the next row still holds the final observation.
        self._next: Tree = None
        if not recurrent:
            self._next = named_map(np.asarray, getattr(env, "next_observation", None))

    @property
    def n_rows(self) -> NDArray[np.intp]:
        """Number of rows stepped in each column, [B]."""
        # Environments are not reset within a batch, so these are the first rows.
        # Not kept, because `_valid` is a view, and has other values in each batch.
        return np.full(self.B, self.T) if self._valid is None else self._valid.sum(axis=0)

    def rnn_state(self, column: int) -> Tree:
        """Return a column's recurrent state before row 0, or None if there is none."""
        state = self.initial_rnn_state
        return None if state is None else named_map(lambda leaf: leaf[0, column], state)

    def final_observation(self, t: int, column: int) -> Tree:
        """Return a copy of the final observation of an episode that ended in a cell.

        Raises:
            ValueError: if the samples do not contain it.
        """
        if self._next is None:
            raise ValueError(
                "samples: expected a field `env.next_observation`, which holds the last "
                "observations of truncated episodes; use allocate_samples(next_observation=True)"
            )
        # The fragment may be in the sender's queue when the sampler writes here again.
        return copied(named_map(lambda leaf: leaf[t, column], self._next))

    def _check(self, samples: Samples, recurrent: bool) -> None:
        # Cut the wrong way, steps of different episodes would be joined, or episodes torn apart.
        valid = getattr(samples.env, "valid", None)
        if (valid is not None) != recurrent:
            expected, got = ("a", "none") if recurrent else ("no", "one")
            raise ValueError(
                f"samples: expected {expected} `env.valid` field for "
                f"FragmentCutter(recurrent={recurrent}), got {got}; samples from RecurrentSampler "
                "include it and require recurrent=True"
            )


def stored_fields(samples: Samples) -> dict[str, Tree]:
    """Return views [T, B, ...] of the fields that fragments store, keyed by name.

    `env.observation` has one more row. `agent.observation` is None if it is `env.observation`.
    """
    env, agent = samples.env, samples.agent
    seen = getattr(agent, "observation", None)
    # Stored once then. FragmentBatch expects it to be missing if there are no step transforms.
    if seen is not None and same_memory(seen, env.observation):
        seen = None
    return {
        # Including the padding row, which holds the observation after the batch.
        "env.observation": named_map(
            lambda leaf: np.asarray(leaf[0 : len(leaf) + 1]), env.observation
        ),
        "env.reward": named_map(np.asarray, env.reward),
        "env.terminated": named_map(np.asarray, env.terminated),
        "env.truncated": named_map(np.asarray, env.truncated),
        "env.env_info": named_map(np.asarray, getattr(env, "env_info", None)),
        "agent.action": named_map(np.asarray, agent.action),
        "agent.agent_info": named_map(np.asarray, getattr(agent, "agent_info", None)),
        "agent.observation": named_map(np.asarray, seen),
    }


def same_memory(one: Tree, other: Tree) -> bool:
    """Check whether two fields share the same memory."""
    ours, theirs = dict(buffer_leaves(one)), dict(buffer_leaves(other))
    # Arrays compare equal if they are views of the same memory.
    return ours.keys() == theirs.keys() and all(
        leaf is theirs[path] or (isinstance(leaf, Array) and leaf == theirs[path])
        for path, leaf in ours.items()
    )


def steps_of(samples: Samples, version: int, *, recurrent: bool) -> Iterator[StepRecord]:
    """Yield the steps of a batch by row, then by column, as views of its memory.

    The recurrent state is known only before row 0.

    version: version of the weights that the batch was sampled with.
    """
    batch = BatchRows(samples, recurrent=recurrent)
    fields, n_rows = batch.fields, batch.n_rows
    # Outside the loops, because most of a record's cost is walking its trees.
    for t in range(batch.T):
        for column in np.flatnonzero(t < n_rows).tolist():
            truncated = bool(batch.truncated[t, column])
            # Where columns end with their episodes, the next row still holds the final observation.
            final = None
            if truncated and not recurrent:
                final = batch.final_observation(t, column)
            # The caller passes it on before the sampler continues, so views are enough.
            yield StepRecord(
                column,
                _cell(fields["env.observation"], t, column),
                _cell(fields["agent.action"], t, column),
                _cell(fields["agent.agent_info"], t, column),
                _cell(fields["env.reward"], t, column),
                _cell(fields["env.terminated"], t, column),
                _cell(fields["env.truncated"], t, column),
                _cell(fields["env.observation"], t + 1, column),
                version,
                final_observation=final,
                env_info=_cell(fields["env.env_info"], t, column),
                agent_observation=_cell(fields["agent.observation"], t, column),
                rnn_state=_cell(batch.initial_rnn_state, 0, column) if t == 0 else None,
            )


def _cell(tree: Tree, t: int, column: int) -> Tree:
    return named_map(lambda leaf: leaf[t, column], tree)
