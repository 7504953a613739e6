"""Collect the experience of some environments with one policy."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from parllel.buffers.tree import buffer_map
from parllel.distributed.rollouts.arguments import (
    check_count,
    check_integer,
    check_kind,
    check_timeout,
)
from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragments.fragment_cutter import FragmentCutter
from parllel.distributed.rollouts.fragments.fragment_noise import FragmentNoise
from parllel.distributed.rollouts.fragments.fragment_sender import FragmentSender
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.pipeline_monitor import PipelineMonitor
from parllel.distributed.rollouts.published_parts import PublishedLayout, PublishedParts
from parllel.distributed.rollouts.schedule import Schedule
from parllel.distributed.rollouts.step_collector import ProgressHandler, StepCollector
from parllel.distributed.rollouts.worker_status import WorkerStatus
from parllel.errors import ClosedError, WorkerTimeoutError, WrongStateError
from parllel.types import Closeable, State

# How long a full queue is waited for before it is looked whether to stop.
_SLICE_S = 0.1


class RolloutWorker(Closeable):
    """Run a schedule, cut its steps into fragments, and take new weights between two of its turns.

    `run` works in the thread that calls it. `load_weights` and `stop` may be called by other threads.

    What anything raises in `run` closes the worker, and comes out of `run` with its traceback: an error of an
    environment in a plain cage, of `progress_handler`, or of the sender's storage.

    Args:
        schedule: closed with the worker.
        fragment_length: steps in a fragment.
        producer: name of this worker, unlike that of all others that fill the same storage.
        seed: of the noise of all actions, which belongs to the places of steps in their fragments. So with
            one seed and fixed weights any schedule makes the same fragments.
        sender: takes the fragments; not closed with the worker. Without one they are dropped.
        progress_handler: called with the record of each step, in the order in which they are collected.
        statistics: gets the episodes.
        task: what they are counted under there, for workers whose environments differ; "" if all are alike.
        monitor: of the seconds that each stage takes; by default one is made.

    Raises:
        TypeError: if a part is something else.
        ValueError: for a length that the schedule cannot have.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        fragment_length: int,
        seed: int,
        producer: str = "local",
        sender: FragmentSender | None = None,
        progress_handler: ProgressHandler | None = None,
        statistics: EpisodeStatistics | None = None,
        task: str = "",
        monitor: PipelineMonitor | None = None,
    ) -> None:
        check_kind("schedule", schedule, Schedule)
        check_integer("seed", seed)
        check_kind("sender", sender, FragmentSender, optional=True)
        check_kind("monitor", monitor, PipelineMonitor, optional=True)
        check_kind("task", task, str)
        check_kind("progress_handler", progress_handler, Callable, optional=True)
        only = schedule.fragment_length
        if only is not None and fragment_length != only:
            raise ValueError(
                f"fragment_length: expected {only}, the rows of the batches of a recurrent agent, got "
                f"{fragment_length}"
            )
        self.schedule = schedule
        self.handler = schedule.handler
        self.sender = sender
        self.monitor = monitor or PipelineMonitor()
        cutter = FragmentCutter(
            fragment_length,
            producer=producer,
            recurrent=schedule.recurrent,
            # Fragments of two workers with one name would be taken for repetitions, and dropped.
            instance_id=os.urandom(8).hex(),
        )
        self._collector = StepCollector(
            cutter,
            FragmentNoise(self.handler, seed, fragment_length),
            schedule.n_environments,
            sender=sender,
            progress_handler=progress_handler,
            statistics=statistics,
            task=task,
            monitor=self.monitor,
        )
        # Now, as the agent must not be asked while another thread lets it act.
        self._parts: PublishedParts | None = None
        with suppress(NotImplementedError):
            self._parts = PublishedParts(self.handler, schedule.step_transforms)
        self._lock = threading.Lock()
        # One place and no queue, since only the newest weights are ever wanted.
        self._new_weights: tuple[State, int] | None = None
        self._newest = 0
        self._stop = threading.Event()
        self._begun = self._closing = self._closed = False
        # Held by the thread that runs, whose identifier is known as long.
        self._at_work = threading.Lock()
        self._runner: int | None = None

    @property
    def n_steps(self) -> int:
        """How many steps have been collected."""
        return self._collector.n_steps

    @property
    def version(self) -> int:
        """The version of the weights that act."""
        return self._collector.version

    @property
    def published_layout(self) -> PublishedLayout | None:
        """What `load_weights` takes; None if the agent does not say what its weights are."""
        return None if self._parts is None else self._parts.layout

    # ------------------------------------------------------------------ what other threads may call

    def load_weights(self, weights: State, version: int) -> bool:
        """Let the agent act with other weights from the next turn of the schedule on.

        weights: the entries of `agent.state()` that `agent.models()` names, as `weights_of` returns them, and
            "step_transforms", if any have statistics, as FragmentSampler publishes them; copied.
        version: of these weights. One that is not above those that came before changes nothing, and False
            is returned.

        Raises:
            ValueError: if they do not fit the agent's and the transforms'; nothing is changed then.
            ClosedError: after `close`, or after an error in `run`.
            NotImplementedError: if the agent does not say what its weights are.
        """
        if self._parts is None:
            self.handler.agent.models()  # raises
            raise AssertionError("models() did not raise again")
        self._parts.layout.check(weights)
        # The next update changes the caller's arrays, maybe before the worker takes them over.
        copied = buffer_map(
            lambda leaf: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf, weights
        )
        if self._closed:
            raise ClosedError("RolloutWorker: load_weights: the worker is closed")
        with self._lock:
            if check_integer("RolloutWorker: version", version) <= self._newest:
                return False
            self._newest, self._new_weights = version, (copied, version)
        # At once, so that what is on its way is judged by it.
        if self.sender is not None:
            self.sender.new_version(version)
        return True

    def stop(self) -> None:
        """Let `run` return after the present turn of the schedule; without a run, let the next one return."""
        self._stop.set()

    # ------------------------------------------------------------------ the loop

    def run(self, n_steps: int | None = None) -> int:
        """Collect at least `n_steps` steps, or until `stop` is called; return how many there were.

        Steps that have begun by then go on, and belong to the next run.

        Raises:
            ValueError: if `n_steps` is less than one.
            ClosedError: after `close`, or after an error.
            WrongStateError: if another thread runs the worker.
            Exception: whatever went wrong; the worker is closed then.
        """
        if n_steps is not None:
            check_count("n_steps", n_steps)
        # Without waiting: a second run would not know which steps are its own.
        if not self._at_work.acquire(blocking=False):
            self._check_open()  # the lock may be that of `close`
            raise WrongStateError(
                "RolloutWorker: run: it is called already, by this thread or another"
            )
        self._runner = threading.get_ident()
        try:
            return self._run(n_steps)
        finally:
            self._runner = None
            self._at_work.release()

    def _check_open(self) -> None:
        # Of `close` as well, which waits for the end of a run: another must not begin before it has its turn.
        if self._closing or self._closed:
            raise ClosedError("RolloutWorker: run: the worker is closed")

    def _run(self, n_steps: int | None) -> int:
        self._check_open()
        began = self.n_steps
        try:
            # Before the reset, so that no step is made with what the agent was built with.
            if not self._begun:
                self._take_weights()
                self.schedule.begin(self._collector)
                self._begun = True
            while not self._stop.is_set() and (n_steps is None or self.n_steps - began < n_steps):
                self._take_weights()
                # Without a wait: environments that are being stepped answer while the queue is full, too.
                room = self.sender is None or self.sender.await_room(0.0)
                # Only where nothing else could be done, and for a slice, so that `stop` is seen.
                if not self.schedule.advance(may_act=room) and not room:
                    with self.monitor.stage("hand_over"):
                        self.sender.await_room(_SLICE_S)  # type: ignore[union-attr]
        # Ctrl-C too: from a turn that ended in the middle nothing can go on.
        except BaseException:
            # What went wrong is what counts, not that a half-dead environment cannot be closed.
            with suppress(Exception):
                self._close()
            raise
        # At the end, and not before the loop: a `stop` that came before `run` counts.
        self._stop.clear()
        return self.n_steps - began

    def _take_weights(self) -> None:
        with self._lock:
            found, self._new_weights = self._new_weights, None
        if found is None:
            return
        weights, version = found
        assert self._parts is not None
        self._parts.load(weights)
        # After the load: an error in it must not leave steps that are stamped with weights they never had.
        self._collector.version = version
        self._collector.drop_stale()

    # ------------------------------------------------------------------ the end

    def status(self) -> WorkerStatus:
        """Return what there is to say of the worker now; other threads may ask."""
        return WorkerStatus(
            self._collector.producer,
            phase="ended" if self._closed else "running" if self._begun else "starting",
            steps=self.n_steps,
            version=self.version,
            parked={number: str(error) for number, error in self.schedule.parked.items()},
            env_restarts=self.schedule.restarts,
            counts={} if self.sender is None else self.sender.ledger.counts(),
            monitor=self.monitor.state(),
        )

    @property
    def stats(self) -> dict[str, Any]:
        """Steps, version, and where the time went, for the log."""
        return {"steps": self.n_steps, "version": self.version, **self.monitor.stats}

    def close(self, timeout_s: float = 60.0) -> None:
        """Stop a run in another thread, and close the schedule; begun fragments are dropped.

        May be called twice.

        Raises:
            WorkerTimeoutError: if the run does not return in time; call it again later.
            WrongStateError: if `run` itself called what calls this, such as the progress handler.
        """
        patience_s = check_timeout("RolloutWorker: close", timeout_s)
        if self._runner == threading.get_ident():
            raise WrongStateError("RolloutWorker: close: called within run(); call stop() there")
        self._closing = True
        self._stop.set()
        # The agent and the environments belong to the thread that runs, until it returns.
        if not self._at_work.acquire(timeout=patience_s):
            raise WorkerTimeoutError(
                f"RolloutWorker: close: the turn of run() in another thread did not end within "
                f"{timeout_s:g} s; give its environments a shorter timeout_s"
            )
        try:
            self._close()
        finally:
            self._at_work.release()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self.schedule.close()


@dataclass(frozen=True)
class WorkerContext:
    """Where one worker of several runs, given to the function that builds it.

    Attributes:
        name: the `producer` of its fragments, unlike that of all others: "worker 3", or "worker 3, start 2"
            after a restart. Seeds that are derived from it differ too.
        storage: where its sender is to send fragments.
        statistics: what is to get its episodes.
        stack: closes what is pushed on it after the worker has ended, in reverse order.
    """

    name: str
    storage: ReplayBufferInterface
    statistics: EpisodeStatistics
    stack: ExitStack


BuildWorker: TypeAlias = Callable[[WorkerContext], RolloutWorker]


def worker_name(number: int, start: int) -> str:
    """Return the name of a worker: its number, and from the second start on how often it was started."""
    return f"worker {number}" if start == 1 else f"worker {number}, start {start}"
