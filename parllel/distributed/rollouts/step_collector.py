"""The path of a schedule's steps into fragments, records and statistics."""

# schedule  -- add_row, add_batch, break_off -->  cutter --> sender's queue, emptied by its thread
#           -- add_row, add_batch ------------->  progress handler, called in this thread
#           -- add_episodes ------------------->  statistics, drained by another thread
# Only the thread that runs the schedule calls these. `RolloutWorker.status` reads `version` and
# `n_steps` from other threads.

from __future__ import annotations

from collections.abc import Callable, Sequence

from parllel.buffers.samples import Samples
from parllel.cages.traj_info import TrajInfo
from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragments.batch_rows import steps_of
from parllel.distributed.rollouts.fragments.fragment_cutter import FragmentCutter
from parllel.distributed.rollouts.fragments.fragment_noise import FragmentNoise, Place
from parllel.distributed.rollouts.fragments.fragment_sender import FragmentSender
from parllel.distributed.rollouts.fragments.sample_fragment import SampleFragment
from parllel.distributed.rollouts.pipeline_monitor import PipelineMonitor
from parllel.distributed.rollouts.single_rows import SingleRows
from parllel.distributed.rollouts.step_record import StepRecord
from parllel.types import Tree

ProgressHandler = Callable[[StepRecord], None]


class StepCollector:
    """Cuts steps into fragments for the sender, and passes on records and episodes.

    Args:
        cutter: the worker's cutter.
        noise: noise of its fragments.
        n_environments: number of environments.
        sender: receives the fragments. None drops them.
        progress_handler: function called with the record of each step.
        statistics: receives the episodes.
        task: task of the episodes.
        monitor: the worker's monitor.

    Attributes:
        version: version of the weights in use.
        n_steps: number of steps so far.
    """

    def __init__(
        self,
        cutter: FragmentCutter,
        noise: FragmentNoise,
        n_environments: int,
        *,
        sender: FragmentSender | None = None,
        progress_handler: ProgressHandler | None = None,
        statistics: EpisodeStatistics | None = None,
        task: str = "",
        monitor: PipelineMonitor,
    ) -> None:
        self.noise = noise
        self.monitor = monitor
        self.version = 0
        self.n_steps = 0
        self._cutter = cutter
        self._n_environments = n_environments
        self._sender = sender
        self._progress_handler = progress_handler
        self._statistics, self._task = statistics, task

    @property
    def producer(self) -> str:
        """The name of the worker."""
        return self._cutter.producer

    def place(self, environment: int) -> Place:
        """Return the position of an environment's next step, which determines its noise."""
        # The same until the step is added, so its noise may be drawn before the agent acts.
        return environment, *self._cutter.position(environment)

    def add_row(
        self,
        rows: SingleRows,
        t: int,
        column: int,
        version: int,
        *,
        final_observation: Tree = None,
        rnn_state: Tree = None,
    ) -> None:
        """Add the step in a cell of a buffer.

        Raises:
            Exception: an error of the progress handler, or of the sender's storage.
        """
        more = {"final_observation": final_observation, "rnn_state": rnn_state}
        fragment = self._cutter.add_row(rows, t, column, version, **more)
        # Before sending: the step has been made, even if the sender raises.
        self.n_steps += 1
        if fragment is not None:
            self._send(fragment)
        # After sending: an error of the handler must not keep the step from its fragment.
        if self._progress_handler is not None:
            self._progress_handler(rows.record(t, column, version, **more))
        # Now rather than when the fragment is full: a stale one would only waste the steps to come.
        self._drop_stale(column)

    def add_batch(self, samples: Samples, n_steps: int) -> None:
        """Add the steps of a batch that was sampled with the current weights.

        Raises the same errors as `add_row`.
        """
        with self.monitor.stage("hand_over"):
            # One version for all rows, since weights change only between two turns.
            fragments = self._cutter.add_batch(samples, self.version)
            self.n_steps += n_steps
            self._send(*fragments)
            if self._progress_handler is not None:
                # After all fragments are sent, for the reason above.
                for step in steps_of(samples, self.version, recurrent=self._cutter.recurrent):
                    self._progress_handler(step)
            self.drop_stale()

    def add_episodes(self, trajs: Sequence[TrajInfo]) -> None:
        """Report episodes that have ended."""
        if self._statistics is not None and trajs:
            self._statistics.report(trajs, self._task)

    def break_off(self, environment: int) -> None:
        """Mark a gap in the steps of an environment, and send its unfinished fragment."""
        fragment = self._cutter.break_off(environment)
        if fragment is not None:
            self._send(fragment)

    def drop_stale(self) -> None:
        """Drop unfinished fragments that have become too old to be sent."""
        for environment in range(self._n_environments):
            self._drop_stale(environment)

    def _drop_stale(self, environment: int) -> None:
        sender = self._sender
        if sender is None or sender.max_staleness is None:
            return
        # A new version reaches the sender at once, but the agent only after the turn. So a fragment
        # may become stale between any two steps.
        oldest = self._cutter.oldest_version(environment)
        if oldest is not None and sender.is_stale(oldest):
            # The episode continues in a new epoch, which makes the gap visible.
            self._cutter.break_off(environment, keep=False)
            sender.count_stale()

    def _send(self, *fragments: SampleFragment) -> None:
        if self._sender is not None and fragments:
            # Never waits, as this turn may have more answers to hand over. RolloutWorker waits for
            # room between two turns.
            self._sender.put(*fragments)
            # Right after an addition, when the queue is longest.
            self.monitor.see_queue("fragments", self._sender.queued, self._sender.capacity)
