"""Sampling for recurrent agents: environments are reset only between batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.cages.traj_info import TrajInfo
from parllel.samplers.batch_sampler import BatchSampler
from parllel.samplers.final_observations import write_next_observations


class RecurrentSampler(BatchSampler):
    """Steps environments up to `T` times. Those whose episode ends wait for the next batch.

    Each column is therefore a piece of one episode, and the recurrent state at the start of the batch is
    enough to recompute all later states. A batch ends early when all environments wait.

    Row t of `env.valid` [T, B] is true for the environments that were stepped; the number of true entries is
    the number of steps of the batch. Where it is false, the fields of the agent, the transforms and the
    environments are zero. The exception is `env.observation`: its first row after the episode holds
    the episode's final observation. If the episode was truncated, `agent.final_value` holds the
    value of this observation, computed with the agent's state at that step.

    Step transforms are called for slices of the environments that are not waiting, possibly several
    times per row.

    Args: as for `BatchSampler`. The cages must have `reset_automatically=False`; they reset their
        environments in the background as soon as an episode ends. The samples need a field `env.valid`.

    Raises:
        ValueError: if cages, buffer and batch spec do not fit together.
    """

    resets_automatically = False

    def __init__(self, *arguments: Any, **named_arguments: Any) -> None:
        super().__init__(*arguments, **named_arguments)
        valid = getattr(self.samples.env, "valid", None)
        if not isinstance(valid, Array) or valid.shape[:2] != self.batch_spec.shape:
            raise ValueError(
                f"samples: expected a field env.valid, bool {list(self.batch_spec.shape)}, true where "
                f"an environment was stepped, got {valid!r}; allocate_samples makes it for cages with "
                "reset_automatically=False"
            )
        # Observations are not zeroed with the other fields: the row after an episode holds its last one.
        self._observed = [leaf for _, leaf in buffer_leaves(self.samples.env.observation)]
        self._written = [
            leaf
            for leaf in self._arrays
            if leaf.shape[:2] == self.batch_spec.shape
            and not any(leaf == observed for observed in self._observed)
        ]

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Fill the buffer with up to `T` more steps of every environment."""
        with self.batch():
            live = self._run()
            while self._lost is not None and not np.asarray(self.samples.env.valid).any():
                # All processes died in row 0, so all environments wait.
                self._reset_ended()
                self.handler.start_batch()
                live = self._run()
            if not live.all():
                self._clear(np.asarray(self.samples.env.valid), live)
            return self.finish()

    def _run(self) -> NDArray[np.bool_]:
        """Step until the batch is full or all environments wait; return which do not wait, [B]."""
        samples, all_envs = self.samples, self.cages.all_envs
        columns, T = all_envs.columns, self.batch_spec.T
        valid, done = np.asarray(samples.env.valid), np.asarray(samples.env.done)
        truncated = np.asarray(samples.env.truncated)
        live = np.ones(self.batch_spec.B, bool)
        # All columns again, as the previous batch may have ended with some of them waiting.
        self._played = [columns]
        valid[:] = False  # a batch that ends early does not write the remaining rows
        act, step = self.bound_act(columns), self.bound_step()
        for t in range(T):
            # Before the step, after which `live` changes for episodes that end.
            valid[t] = live
            act(t)
            step(t)
            if done[t].any():
                if self._lost is not None:
                    self._mark_crashes(t, live)
                # Only in the row of the end: later rows of a waiting environment may repeat its flags.
                cut = truncated[t] & live
                if cut.any():
                    self._write_values_of_ends(t, np.flatnonzero(cut))
                live &= ~done[t]
                if not live.any():
                    return live
                if self.step_transforms:
                    self._played = slices_of(live)
        self.bootstrap(columns)
        return live

    def _mark_crashes(self, t: int, live: NDArray[np.bool_]) -> None:
        """Mark the steps of row `t` that were lost, and remove their environments from `live`."""
        assert self._lost is not None
        for crash in self.cages.crashes():
            b = crash.column
            # A waiting environment had no step to lose.
            if live[b]:
                live[b] = False
                self._lost.episodes += 1
                if self._lost.mark(t, b):
                    self._forget([b])

    def transform_row(self, t: int, columns: slice) -> None:
        """Apply the step transforms to row `t` of the columns that are not waiting."""
        # By slices, as indexing with a mask would give each transform a copy.
        for played in self._played:
            super().transform_row(t, played)

    def _write_values_of_ends(self, t: int, columns: NDArray[np.intp]) -> None:
        """Write the values of the observations after row `t`. The agent's state must be that of row `t`."""
        observation = buffer_map(
            lambda leaf: np.asarray(leaf[t + 1])[columns], self.samples.env.observation
        )
        seen = self.final_chain.as_seen(observation)
        self.handler.final_value(np.full(len(columns), t, np.intp), columns, seen)

    def _clear(self, valid: NDArray[np.bool_], live: NDArray[np.bool_]) -> None:
        """Zero the cells after the ends of episodes, which hold values of earlier batches."""
        waiting = ~valid
        for leaf in self._written:
            np.asarray(leaf)[waiting] = 0
            if leaf.padding:
                np.asarray(leaf[leaf.last + 1])[~live] = 0
        # Environments never restart within a batch, so rows in which any was stepped come first.
        stop = int(valid.any(axis=1).sum())
        if stop < len(valid):
            for leaf in self._observed:
                leaf[stop + 1 :] = 0
                leaf[leaf.last + 1] = 0

    def _write_final_values(self) -> None:
        # `_run` has written them. The cages' final observations are discarded, or they would accumulate.
        self.cages.final_observations()
        self._see_crashes_between_batches()
        if self._has_next_observations:
            write_next_observations(
                self.samples, ()
            )  # no final observations: no reset has replaced an observation in this batch


def slices_of(mask: NDArray[np.bool_]) -> list[slice]:
    """Return the runs of true entries of `mask` [B] as slices, in order."""
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False)).tolist()
    return [slice(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
