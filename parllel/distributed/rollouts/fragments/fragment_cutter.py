"""Cutting the steps of environments into fragments."""

# steps of an environment --> RunningFragment -- finish --> SampleFragment --> sender, storage
#                             written by one thread         read-only, for any thread

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.samples import Samples
from parllel.distributed.rollouts.arguments import check_count, check_integer, check_kind
from parllel.distributed.rollouts.fragments.batch_rows import BatchRows
from parllel.distributed.rollouts.fragments.running_fragment import (
    FragmentLayout,
    RunningFragment,
    copied,
)
from parllel.distributed.rollouts.fragments.sample_fragment import SampleFragment
from parllel.distributed.rollouts.single_rows import SingleRows
from parllel.distributed.rollouts.step_record import StepRecord
from parllel.types import Tree


@dataclass
class _Stream:
    """The position in the steps of one environment."""

    # The pair of epoch and sequence only grows: `KnownProducers.has_arrived` takes a lower one for
    # a repetition.
    epoch: int = 0
    sequence: int = 0
    # True if the next step starts an episode or follows a gap.
    first: bool = True
    # Has no rows if its first step was refused, so `break_off` and `oldest_version` check that.
    running: RunningFragment | None = None


class FragmentCutter:
    """Cuts the steps of environments into fragments. Environments may step in any order.

    Pass single steps to `add_step`, rows of an AsynchronousSchedule's buffer to `add_row`, or batches of a
    sampler to `add_batch`. The same steps give the same fragments in all three ways. Each value is copied
    once, to the memory of its fragment. Not thread-safe.

    A fragment continues across the ends of episodes. With `recurrent` it ends with its episode; it still has
    `fragment_length` rows, and `env.valid` marks those that were stepped.

    Args:
        fragment_length: number of steps in a fragment.
        producer: name of the worker, unique among the workers that fill the same buffer.
        recurrent: True if the agent is recurrent. Batches are then from a RecurrentSampler.
        instance_id: identifies the producer, see `SampleFragment`.

    Raises:
        TypeError: if the length is not a whole number, or the name not a str.
        ValueError: if the length is less than 1, or the name is empty.
    """

    def __init__(
        self,
        fragment_length: int,
        *,
        producer: str = "local",
        recurrent: bool = False,
        instance_id: str = "",
    ) -> None:
        check_kind("producer", producer, str)
        if not producer:
            raise ValueError("producer: expected a name, got ''")
        self.fragment_length = check_count("fragment_length", fragment_length)
        self.producer = producer
        self.instance_id = instance_id
        self.recurrent = recurrent
        # Taken from the first step, which all others must match.
        self._layout: FragmentLayout | None = None
        # Views of the last samples, if they remain valid for the next batch.
        self._batch: BatchRows | None = None
        self._single: SingleRows | None = None
        self._leaves: list[NDArray[Any]] = []
        self._streams: dict[int, _Stream] = {}

    def add_step(self, step: StepRecord) -> SampleFragment | None:
        """Add one step. Returns the fragment that it completes, if any.

        Raises:
            ValueError: if shapes or dtypes differ from the first step, or a truncated episode has no
                `final_observation`.
        """
        stream = self._stream(step.environment)
        fields = {
            "env.observation": step.observation,
            "env.reward": step.reward,
            "env.terminated": step.terminated,
            "env.truncated": step.truncated,
            "env.env_info": step.env_info,
            "agent.action": step.action,
            "agent.agent_info": step.agent_info,
            "agent.observation": step.agent_observation,
        }
        layout = self._layout = self._layout or FragmentLayout(
            fields, cell=0, length=self.fragment_length
        )
        running = stream.running = stream.running or self._begin(layout, step.rnn_state)
        final = step.final_observation
        # Before the row is written, so a refused step leaves no trace in the fragment.
        self._check_final(step.environment, bool(step.truncated), final)
        running.put_step(
            layout.leaves_of(fields),
            layout.observation_of(step.next_observation),
            first=stream.first,
            version=step.version,
        )
        done = bool(step.terminated or step.truncated)
        return self._end_step(step.environment, stream, done, bool(step.truncated), final)

    def add_row(
        self,
        rows: SingleRows,
        t: int,
        column: int,
        version: int,
        *,
        final_observation: Tree = None,
        rnn_state: Tree = None,
    ) -> SampleFragment | None:
        """Add the step in a cell of a buffer. Faster than `add_step` with its record.

        Raises:
            ValueError: as in `add_step`.
        """
        stream = self._stream(column)
        # By identity: the leaves are views, valid as long as the buffer is the same.
        if rows is not self._single:
            self._layout = self._layout or FragmentLayout(
                rows.fields, cell=2, length=self.fragment_length
            )
            self._single, self._leaves = rows, self._layout.leaves_of(rows.fields)
        assert self._layout is not None
        if stream.running is None:
            stream.running = self._begin(self._layout, rnn_state)
        truncated = bool(rows.truncated[t, column])
        self._check_final(column, truncated, final_observation)
        # Copied now, because the cage overwrites the cell in a later row, with T=1 in the next.
        stream.running.put_row(self._leaves, t, column, first=stream.first, version=version)
        done = bool(rows.done[t, column])
        return self._end_step(column, stream, done, truncated, final_observation)

    def _check_final(self, environment: int, truncated: bool, final: Tree) -> None:
        if truncated and final is None and not self.recurrent:
            raise ValueError(
                f"environment {environment}: expected final_observation with the last step of a "
                "truncated episode, got None"
            )

    def _end_step(
        self, environment: int, stream: _Stream, done: bool, truncated: bool, final: Tree
    ) -> SampleFragment | None:
        """Finish a step after its row was written. Returns the fragment if it is complete."""
        running = stream.running
        assert running is not None
        # Without a recurrent agent, only truncated episodes need theirs: nothing is bootstrapped
        # where an episode terminated.
        if done and final is not None:
            # A recurrent agent's fragment ends with its episode, so the row after the last one is free.
            if self.recurrent:
                running.put_after(final)
            elif truncated:
                running.final_observations[running.rows - 1] = copied(final)
        stream.first = done
        if running.left == 0 or (done and self.recurrent):
            return self._finish(environment, stream)
        return None

    def add_batch(self, samples: Samples, version: int) -> list[SampleFragment]:
        """Add the rows of a batch. Returns the fragments that they complete, keyed by environment.

        Columns are the numbers of the environments. If episodes are truncated, the samples need
        `env.next_observation`. Fields of batch transforms are not copied.

        version: version of the weights that the batch was sampled with.

        Raises:
            ValueError: if the samples lack a field that fragments need, or, with `recurrent`, the number of
                rows is not `fragment_length`.
        """
        check_integer("version", version)
        batch = self._batch
        if batch is None or batch.samples is not samples:
            batch = BatchRows(samples, recurrent=self.recurrent)
            # Views of memory that moves would show the previous batch next time.
            self._batch = batch if batch.stays else None
        # The recurrent state is known only before row 0.
        if self.recurrent and self.fragment_length != batch.T:
            raise ValueError(
                f"samples: expected batches of fragment_length={self.fragment_length} rows for a recurrent "
                f"agent, got {batch.T}"
            )
        layout = self._layout = self._layout or FragmentLayout(
            batch.fields, cell=2, length=self.fragment_length
        )
        leaves, n_rows = layout.leaves_of(batch.fields), batch.n_rows.tolist()
        first = np.empty_like(batch.done)
        # Row 0 may continue the previous batch; within a batch, episodes begin where others ended.
        first[0] = [self._stream(column).first for column in range(batch.B)]
        first[1:] = batch.done[:-1]
        cut_short = not self.recurrent and bool(batch.truncated.any())
        # If a later column raises, these are lost without a new epoch: the error ends the worker.
        finished = []
        for column in range(batch.B):
            stream, n, t = self._stream(column), n_rows[column], 0
            while t < n:
                running = stream.running
                if running is None:
                    running = stream.running = self._begin(layout, batch.rnn_state(column))
                rows = slice(t, min(n, t + running.left))
                if cut_short:
                    # Before `put_rows`, which advances `running.rows`, the offset used there.
                    self._keep_final(batch, rows, column, running)
                running.put_rows(leaves, column, rows, first=first, version=version)
                t = rows.stop
                if running.left == 0 or (self.recurrent and t == n):
                    finished.append(self._finish(column, stream))
            if n:
                stream.first = bool(batch.done[n - 1, column])
        return finished

    @staticmethod
    def _keep_final(batch: BatchRows, rows: slice, column: int, running: RunningFragment) -> None:
        """Copy the final observations of truncated episodes."""
        for end in batch.truncated[rows, column].nonzero()[0].tolist():
            after = batch.final_observation(rows.start + end, column)
            running.final_observations[running.rows + end] = after

    def _begin(self, layout: FragmentLayout, rnn_state: Tree) -> RunningFragment:
        return RunningFragment(
            layout,
            padded=self.recurrent,
            initial_rnn_state=rnn_state if self.recurrent else None,
        )

    def break_off(self, environment: int, *, keep: bool = True) -> SampleFragment | None:
        """Mark a gap in the steps of an environment. Returns its unfinished fragment, if any.

        The next step begins a new epoch, and is `first` even in the middle of an episode. In the returned
        fragment, `env.aborted` is True for the last step unless it ended its episode. It is shorter than
        others unless `recurrent`.

        keep: whether to return the unfinished fragment. If False, it is dropped, for example
            because it has become too old.
        """
        stream = self._stream(environment)
        fragment = None
        if keep and stream.running is not None and stream.running.rows:
            # If the last step ended its episode, `first` is set, and nothing was broken off.
            fragment = self._finish(environment, stream, aborted=not stream.first)
        stream.running = None
        # Even without an unfinished fragment: only the epochs show a gap between two complete ones.
        stream.epoch, stream.sequence, stream.first = stream.epoch + 1, 0, True
        return fragment

    def position(self, environment: int) -> tuple[int, int, int]:
        """Return epoch, sequence number and row of an environment's next step."""
        stream = self._stream(environment)
        # FragmentNoise asks before the step is added: noise depends only on the place of a step.
        rows = 0 if stream.running is None else stream.running.rows
        return stream.epoch, stream.sequence, rows

    def oldest_version(self, environment: int) -> int | None:
        """Return the lowest version in the unfinished fragment, or None if there is none."""
        running = self._stream(environment).running
        # Only of the unfinished fragment, because the sender judges finished ones.
        return None if running is None or running.rows == 0 else running.oldest_version

    def _stream(self, environment: int) -> _Stream:
        stream = self._streams.get(environment)
        if stream is None:
            stream = self._streams[environment] = _Stream()
        return stream

    def _finish(
        self, environment: int, stream: _Stream, *, aborted: bool = False
    ) -> SampleFragment:
        assert stream.running is not None
        # A restarted worker has another name: its keys are new, although it counts from 0 again.
        key = (self.producer, environment, stream.epoch, stream.sequence)
        fragment = stream.running.finish(key, aborted=aborted, instance_id=self.instance_id)
        # The fragment owns the memory now, and other threads may read it at any time, so no
        # reference to it stays here.
        stream.running = None
        stream.sequence += 1
        return fragment
