"""One rollout worker in an actor.

    manager  run          -->  worker's thread:   build, act, step, cut --> sender thread --> RayReplayBuffer
             report       <--  follower's thread: the worker's status, then wait for newer weights
             publication  -->                     fetch, copy, load_weights --> worker's thread
             stop         -->  (a third thread, so that it is answered whatever the others wait for)
    buffer   contents     -->  (a fourth thread, while the sender thread waits for an answer)

Only the follower calls the manager. An error on one thread ends the others, and `run` returns it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import ray

from parllel.distributed.rollouts.arguments import check_kind
from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragments.sample_fragment import FragmentKey
from parllel.distributed.rollouts.on_ray.answers import LATE_S, answer
from parllel.distributed.rollouts.on_ray.large_fragments import FragmentContent
from parllel.distributed.rollouts.on_ray.packed_build import unpack_build
from parllel.distributed.rollouts.on_ray.publication import Publication
from parllel.distributed.rollouts.on_ray.ray_episode_statistics import EpisodeReporter
from parllel.distributed.rollouts.on_ray.ray_replay_buffer import RayReplayBuffer
from parllel.distributed.rollouts.on_ray.raylet_watch import end_with_raylet
from parllel.distributed.rollouts.rollout_worker import BuildWorker, RolloutWorker, WorkerContext
from parllel.distributed.rollouts.worker_end import WorkerEnd
from parllel.distributed.rollouts.worker_status import WorkerStatus
from parllel.errors import ClosedError

# How long the manager holds a report for newer weights, and so the age of the statuses that it has.
REPORT_S = 0.5


class RolloutWorkerWrapper:
    """Builds a worker, runs it, and supplies it with weights.

    Args:
        build: the trainer's `sys.path` and a `BuildWorker`, packed by `pack_build`.
        name: name of the worker.
        buffer: storage for its fragments.
        statistics: the actor that receives its episodes.
        manager: the actor that started this one.
    """

    def __init__(
        self, build: bytes, name: str, buffer: RayReplayBuffer, statistics: Any, manager: Any
    ) -> None:
        end_with_raylet()
        self._build, self._name, self._buffer = build, name, buffer
        self._manager = manager
        self._episodes = EpisodeStatistics()
        self._reporter = EpisodeReporter(self._episodes, statistics)
        self._worker: RolloutWorker | None = None
        self._weights_came, self._stopping = threading.Event(), threading.Event()
        self._ran = threading.Event()  # the last turn is over
        self._error: BaseException | None = None
        node = ray.get_runtime_context().get_node_id()
        self._buffer.offer_from_here()
        self._where = f"node {node[:8]}, pid {os.getpid()}"

    # ------------------------------------------------------------------ what the manager calls

    def run(self) -> WorkerEnd | None:
        """Run the worker until `stop`. Returns the error that ended the worker, or None."""
        try:
            with ExitStack() as stack:
                self._worker = self._built(stack)
                follower = threading.Thread(target=self._follow, name="follower", daemon=True)
                follower.start()
                # Before the worker is closed, because it refuses weights then. Bounded, because the
                # follower may be waiting for a manager that hangs.
                stack.callback(follower.join, LATE_S)
                # These run before the join.
                stack.callback(self._ran.set)
                stack.callback(self._stopping.set)
                # Without the trainer's weights, its experience would be useless. The follower ends this wait
                # if the manager no longer answers.
                self._weights_came.wait()
                if not self._stopping.is_set():
                    self._worker.run()
        except BaseException as error:
            # An error of the follower takes precedence, because it stopped the worker.
            return WorkerEnd.of(self._error or error, built=self._worker is not None)
        return None if self._error is None else WorkerEnd.of(self._error, built=True)

    def _built(self, stack: ExitStack) -> RolloutWorker:
        context = WorkerContext(self._name, self._buffer, self._episodes, stack)
        # Unpacked here, so that errors in its imports are reported as errors of the worker.
        build: BuildWorker = unpack_build(self._build)
        worker = build(context)
        check_kind("RayRollouts: build: its result", worker, RolloutWorker)
        stack.enter_context(worker)
        # Statuses and arrived fragments are matched by this name.
        if (found := worker.status().name) != self._name:
            raise ValueError(
                f"RayRollouts: build: expected a worker with producer=context.name, {self._name!r}, got "
                f"{found!r}"
            )
        return worker

    def stop(self) -> None:
        """Make `run` return after the current turn."""
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()
        # Last: `run` wakes up if it still waits for weights, and then finds `_stopping` set.
        self._weights_came.set()

    def status(self) -> WorkerStatus:
        """Return the worker's current status."""
        # Read once, because `run` sets it in another thread.
        worker = self._worker
        status = WorkerStatus(self._name) if worker is None else worker.status()
        status.where = self._where
        return status

    # ------------------------------------------------------------------ what the buffer calls

    def contents(self, keys: Sequence[FragmentKey]) -> list[FragmentContent]:
        """Return the contents of fragments that are offered to the buffer, whose actor owns the result."""
        return self._buffer.contents(keys)

    # ------------------------------------------------------------------ the follower

    def _follow(self) -> None:
        assert self._worker is not None
        known = 0
        try:
            layout = self._worker.published_layout
            if layout is None:
                self._worker.handler.agent.models()  # raises
            while not self._stopping.is_set():
                self._reporter.send()
                # The manager needs the layout only until the first publication.
                reference = self._manager.report.remote(
                    self.status(), None if known else layout, known, REPORT_S
                )
                # A manager that no longer answers ends this worker: nobody would ever stop it.
                publication = answer(reference, self._name, "report", REPORT_S + LATE_S)
                if publication is not None:
                    self._load(publication)
                    known = publication.version
            self._reporter.send()  # episodes that ended since the last report
            # Then those of the last turn. Not only once, because a turn that hangs is killed.
            self._ran.wait()
            self._reporter.send()
        except BaseException as error:
            # Before `stop`, which wakes `run`: it must find the error.
            self._error = error
            self.stop()

    def _load(self, publication: Publication) -> None:
        assert self._worker is not None
        weights = publication.fetch()
        # A failed worker refuses weights while it closes its environments, which may take seconds; `run`
        # then returns the error that explains why.
        with suppress(ClosedError):
            # `load_weights` copies, so the view of the object store is released when this returns.
            self._worker.load_weights(weights, publication.version)
        # After loading: the first turn of `run` takes these weights.
        self._weights_came.set()
