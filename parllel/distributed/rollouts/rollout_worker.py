"""A rollout worker, which collects the experience of some environments with one policy.

    other threads   load_weights --> one place for the newest weights --+
                    stop --> event ------------------------------+      |
                                                                 v      v    between two turns
    the thread in `run`   Schedule --- steps --> StepCollector --- fragments --> FragmentSender

`_lock` guards the new weights, and `_at_work` is held by the thread that runs or closes the schedule.
"""

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

# Longest wait for room in a full queue, after which `stop` is noticed.
_SLICE_S = 0.1


class RolloutWorker(Closeable):
    """Runs a schedule, cuts its steps into fragments, and loads new weights between its turns.

    `run` works in the thread that calls it. Other threads may call `load_weights` and `stop`.

    Any error in `run` closes the worker and is raised by `run`: an error of an environment in a plain cage,
    of `progress_handler`, or of the sender's storage.

    Args:
        schedule: the schedule. `close` closes it.
        fragment_length: number of steps in a fragment.
        producer: name of this worker, unique among the workers that fill the same storage.
        seed: seed of the actions' noise, which depends on a step's position in its fragment. With the same
            seed and fixed weights, every schedule produces the same fragments.
        sender: receives the fragments. `close` leaves it open. None drops the fragments.
        progress_handler: function called with the record of each step, in the order of collection.
        statistics: receives the episodes.
        task: task of these episodes, for workers with different environments. "" if all have the
            same.
        monitor: measures the seconds of each stage. Default: a new monitor.

    Raises:
        TypeError: if a part has the wrong type.
        ValueError: for a fragment length that the schedule does not support.
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
                f"fragment_length: expected {only}, the number of rows in the batches of a "
                f"recurrent agent, got {fragment_length}"
            )
        self.schedule = schedule
        self.handler = schedule.handler
        self.sender = sender
        self.monitor = monitor or PipelineMonitor()
        cutter = FragmentCutter(
            fragment_length,
            producer=producer,
            recurrent=schedule.recurrent,
            # Otherwise fragments of two workers with the same name would be dropped as duplicates.
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
        # Determined now: the agent must not be read while another thread runs it.
        self._parts: PublishedParts | None = None
        with suppress(NotImplementedError):
            self._parts = PublishedParts(self.handler, schedule.step_transforms)
        # Held only to exchange references, so `load_weights` never waits for a turn.
        self._lock = threading.Lock()
        # One place rather than a queue, because only the newest weights matter.
        self._new_weights: tuple[State, int] | None = None
        # Newest accepted version. It stays when the thread in `run` takes the weights away.
        self._newest = 0
        self._stop = threading.Event()
        self._begun = self._closing = self._closed = False
        # Held by the thread in `run`, whose identifier is `_runner` meanwhile, or in `close`.
        self._at_work = threading.Lock()
        self._runner: int | None = None

    @property
    def n_steps(self) -> int:
        """Number of steps collected."""
        return self._collector.n_steps

    @property
    def version(self) -> int:
        """Version of the weights in use."""
        return self._collector.version

    @property
    def published_layout(self) -> PublishedLayout | None:
        """Layout of the weights for `load_weights`. None if the agent lacks `models`."""
        return None if self._parts is None else self._parts.layout

    # ------------------------------------------------------------------ what other threads may call

    def load_weights(self, weights: State, version: int) -> bool:
        """Use new weights from the next turn of the schedule on. Thread-safe.

        weights: the entries of `agent.state()` named by `agent.models()`, as returned by `weights_of`, plus
            "step_transforms" for statistics, as published by FragmentSampler. Copied.
        version: version of these weights. If it is not above all earlier versions, nothing changes
            and the result is False.

        Raises:
            ValueError: if the weights do not fit the agent or the transforms. In this case nothing
                changes.
            ClosedError: after `close`, or after an error in `run`.
            NotImplementedError: if the agent does not implement `models`.
        """
        if self._parts is None:
            self.handler.agent.models()  # raises
            raise AssertionError("models() did not raise again")
        self._parts.layout.check(weights)
        # Copied, because the next update may change the caller's arrays before the worker loads them.
        copied = buffer_map(
            lambda leaf: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf, weights
        )
        # Without a lock: weights that arrive while the worker closes are simply never loaded.
        if self._closed:
            raise ClosedError("RolloutWorker: load_weights: the worker is closed")
        with self._lock:
            if check_integer("RolloutWorker: version", version) <= self._newest:
                return False
            self._newest, self._new_weights = version, (copied, version)
        # Immediately, so that fragments in the queue are judged by the new version.
        # Outside the lock: if two callers swap here, the sender keeps the higher version.
        if self.sender is not None:
            self.sender.new_version(version)
        return True

    def stop(self) -> None:
        """Make `run`, or the next call of it, return after the current turn. Thread-safe."""
        self._stop.set()

    # ------------------------------------------------------------------ the loop

    def run(self, n_steps: int | None = None) -> int:
        """Collect at least `n_steps` steps, or until `stop` is called. Returns the number of steps.

        Steps in progress at the end belong to the next run.

        Raises:
            ValueError: if `n_steps` is less than 1.
            ClosedError: after `close`, or after an error.
            WrongStateError: if the worker is already running.
            Exception: any error of a part. The worker is then closed.
        """
        if n_steps is not None:
            check_count("n_steps", n_steps)
        # Without waiting, because a second run could not tell which steps are its own.
        if not self._at_work.acquire(blocking=False):
            self._check_open()  # the lock may be held by `close`
            raise WrongStateError(
                "RolloutWorker: run: this thread or another one is already running the worker"
            )
        self._runner = threading.get_ident()
        try:
            return self._run(n_steps)
        finally:
            # Before the release, after which the next thread in `run` writes its own.
            self._runner = None
            self._at_work.release()

    def _check_open(self) -> None:
        # `close` sets `_closing` before it waits for the current run, so that no other run begins before it.
        if self._closing or self._closed:
            raise ClosedError("RolloutWorker: run: the worker is closed")

    def _run(self, n_steps: int | None) -> int:
        # Checked with `_at_work` held, so a `close` that comes later waits for this run.
        self._check_open()
        began = self.n_steps
        try:
            # Before the first reset, so that no step uses the agent's initial weights.
            if not self._begun:
                self._take_weights()
                self.schedule.begin(self._collector)
                self._begun = True
            while not self._stop.is_set() and (n_steps is None or self.n_steps - began < n_steps):
                self._take_weights()
                # Without waiting: environments in the middle of a step answer even while the queue is full.
                # This call also raises an error of the sender's thread, which ends the run.
                room = self.sender is None or self.sender.await_room(0.0)
                # Wait only if there was nothing else to do, and for one slice, so that `stop` is noticed.
                if not self.schedule.advance(may_act=room) and not room:
                    with self.monitor.stage("hand_over"):
                        self.sender.await_room(_SLICE_S)  # type: ignore[union-attr]
        # Includes Ctrl-C: a turn that was interrupted cannot be continued.
        except BaseException:
            # Errors on closing half-dead environments must not hide the original one.
            with suppress(Exception):
                self._close()
            raise
        # Cleared at the end rather than before the loop, so that a `stop` before `run` counts.
        self._stop.clear()
        return self.n_steps - began

    def _take_weights(self) -> None:
        with self._lock:
            found, self._new_weights = self._new_weights, None
        if found is None:
            return
        # Loaded without the lock: the trainer may publish the next version meanwhile.
        weights, version = found
        assert self._parts is not None
        # A failure may leave the agent half loaded. It ends the run, like any error here.
        self._parts.load(weights)
        # After loading: if it fails, no step may carry a version whose weights were never in use.
        self._collector.version = version
        # All environments, as one in a long step adds no row soon, which would check it.
        self._collector.drop_stale()

    # ------------------------------------------------------------------ the end

    def status(self) -> WorkerStatus:
        """Return the worker's current status. Thread-safe."""
        # Without a lock, so no turn delays it. Each value is read in one piece, but together they
        # may belong to different moments.
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
        """Steps, version and seconds by stage, for the log."""
        return {"steps": self.n_steps, "version": self.version, **self.monitor.stats}

    def close(self, timeout_s: float = 60.0) -> None:
        """Stop a run in another thread, and close the schedule. Unfinished fragments are dropped. Idempotent.

        Raises:
            WorkerTimeoutError: if the run does not return in time. Call `close` again later.
            WrongStateError: if called within `run`, for example by the progress handler.
        """
        patience_s = check_timeout("RolloutWorker: close", timeout_s)
        # Safe without a lock: only this thread itself could have stored its identifier.
        if self._runner == threading.get_ident():
            raise WrongStateError("RolloutWorker: close: called within run(); call stop() there")
        # In this order: `_stop` ends the current run, which clears it; `_closing` stays.
        self._closing = True
        self._stop.set()
        # The running thread owns the agent and the environments until it returns. Locks refuse infinity.
        if not self._at_work.acquire(timeout=min(patience_s, threading.TIMEOUT_MAX)):
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
            # Before the environments close, which may take seconds: `load_weights` refuses from
            # here on, and `WorkerThread.load_weights` waits for the error that explains why.
            self._closed = True
            self.schedule.close()


@dataclass(frozen=True)
class WorkerContext:
    """The context of one worker of a run, passed to the function that builds it.

    Attributes:
        name: name for the `producer` of its fragments, unique to each start: "worker 3", or "worker
            3, start 2" after a restart. Derive seeds from it, so that they are unique too.
        storage: storage for its sender.
        statistics: receives its episodes.
        stack: exit stack. After the worker has ended, resources pushed on it are closed in reverse
            order.
    """

    name: str
    storage: ReplayBufferInterface
    statistics: EpisodeStatistics
    stack: ExitStack


BuildWorker: TypeAlias = Callable[[WorkerContext], RolloutWorker]


def worker_name(number: int, start: int) -> str:
    """Return the name of a worker: its number and, from the second start on, the number of the start."""
    return f"worker {number}" if start == 1 else f"worker {number}, start {start}"
