"""A rollout worker in a process of its own, and the thread of the trainer's process that answers it.

    worker's process                                          trainer's process, a thread for each worker
        sender thread    add: fragments, episodes  ---->      ReplayBuffer.add, EpisodeStatistics.report
        follower         report: status, episodes  ---->      EpisodeStatistics.report
        both             newest weights, stop      <----      what `load_weights` and `stop` have left

Each request has one answer, and the process makes one request at a time. Every answer brings the newest
weights if the process does not have them: a worker that adds fragments has new weights as soon as it has
added the next one. The follower's reports are also the sign that the process lives.
"""

from __future__ import annotations

import math
import pickle
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, NamedTuple

import cloudpickle

from parllel.distributed.rollouts.arguments import check_kind
from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.fragments.sample_fragment import SampleFragment
from parllel.distributed.rollouts.published_parts import PublishedLayout
from parllel.distributed.rollouts.rollout_worker import BuildWorker, RolloutWorker, WorkerContext
from parllel.distributed.rollouts.worker_status import WorkerStatus
from parllel.errors import ClosedError, WorkerTimeoutError, WrongStateError
from parllel.system.processes.child import Child
from parllel.system.processes.exceptions import pack_exception, raise_packed
from parllel.system.processes.pipe_end import PipeEnd
from parllel.types import Closeable, State

# Pause between reports: before the first weights, for which the run waits, and afterwards.
_FIRST_REPORT_S, _REPORT_S = 0.02, 0.25
# The pipe takes an answer at once; a process that is stopped does not.
_ANSWER_S = 30.0


class Answer(NamedTuple):
    """What every request is answered with.

    Attributes:
        done: number of fragments that were handled.
        weights: newest weights, packed, and their version; None if the process has them.
        stop: whether to end after the current turn.
        error: packed error of the buffer, or None.
    """

    done: int
    weights: tuple[bytes, int] | None
    stop: bool
    error: bytes | None


# ---------------------------------------------------------------------- in the worker's process


def run_worker(connection: Connection, build: BuildWorker, name: str) -> None:
    """Build a worker and run it until it is told to stop. The target of a Child."""
    with ExitStack() as stack:
        statistics = EpisodeStatistics()
        line = _Line(connection, statistics)
        worker = build(WorkerContext(name, _Storage(line), statistics, stack))
        check_kind("ProcessRollouts: build: its result", worker, RolloutWorker)
        stack.enter_context(worker)
        # Statuses and fragments are matched by this name.
        if (found := worker.status().name) != name:
            raise ValueError(
                f"ProcessRollouts: build: expected a worker with producer=context.name, {name!r}, got "
                f"{found!r}"
            )
        if worker.published_layout is None:
            worker.handler.agent.models()  # raises
        line.worker = worker
        line.ask("built", worker.published_layout)
        follower = _Follower(line, worker)
        follower.start()
        try:
            line.weights_came.wait()
            if not line.stopping:
                worker.run()
        finally:
            follower.ran.set()
            follower.join()
        if follower.error is not None:
            raise follower.error
    # The worker and what its builder pushed are closed: the last fragments and counts are known.
    line.ask("ended", worker.status())


class _Line:
    """Requests of this process, one at a time. Each brings the episodes that have ended since the last."""

    def __init__(self, connection: Connection, statistics: EpisodeStatistics) -> None:
        self._pipe, self._lock = PipeEnd(connection), threading.Lock()
        self._statistics = statistics
        self.worker: RolloutWorker | None = None
        self._known = 0
        self.stopping = False
        self.weights_came = threading.Event()  # or the end

    def ask(self, kind: str, *content: Any) -> int:
        """Make a request, and load the weights that its answer brings.

        Returns the number of fragments that were handled.
        """
        # Only these may be of a script's own classes; cloudpickle takes longer.
        episodes = self._statistics.drain_tasks()
        packed = cloudpickle.dumps(episodes) if episodes else b""
        message = pickle.dumps((kind, content, packed, self._known), protocol=5)
        with self._lock:
            # Without limits: if the trainer's process ends, so does this one.
            self._pipe.write(message, math.inf)
            answer: Answer = pickle.loads(self._pipe.read(None))
        if answer.stop:
            self.stop()
        if answer.weights is not None and self.worker is not None:
            weights, version = answer.weights
            # A failed worker refuses weights while it closes its environments.
            with suppress(ClosedError):
                self.worker.load_weights(pickle.loads(weights), version)
            self._known = max(self._known, version)
            self.weights_came.set()
        if answer.error is not None:
            raise_packed(answer.error, "in the trainer's process")
        return answer.done

    def stop(self) -> None:
        """Have the worker end after its current turn, or before its first."""
        self.stopping = True
        if self.worker is not None:
            self.worker.stop()
        self.weights_came.set()


class _Follower(threading.Thread):
    """Reports the status, and notices new weights and the end while no fragments are added."""

    def __init__(self, line: _Line, worker: RolloutWorker) -> None:
        super().__init__(name="follower", daemon=True)
        self.ran = threading.Event()  # the last turn is over
        self.error: BaseException | None = None
        self._line, self._worker = line, worker

    def run(self) -> None:
        """Report until the last turn is over, and once more."""
        try:
            while not self.ran.is_set():
                self._report()
                self.ran.wait(_REPORT_S if self._line.weights_came.is_set() else _FIRST_REPORT_S)
            self._report()
        except BaseException as error:
            self.error = error
            self._line.stop()

    def _report(self) -> None:
        self._line.ask("report", self._worker.status())


class _Storage(ReplayBufferInterface):
    """The trainer's buffer, as its workers see it."""

    def __init__(self, line: _Line) -> None:
        self._line = line

    def add(self, fragments: Sequence[SampleFragment], timeout_s: float) -> int:
        """Add fragments to the trainer's buffer."""
        return self._line.ask("add", list(fragments), timeout_s)

    def fetch(self, n: int, timeout_s: float, version: int | None = None) -> Any:
        """Raise WrongStateError: fragments are for the trainer."""
        raise _not_here("fetch")

    def prepared(self) -> int:
        """Raise WrongStateError."""
        raise _not_here("prepared")

    def new_version(self, version: int) -> None:
        """Raise WrongStateError."""
        raise _not_here("new_version")

    def close(self) -> None:
        """Do nothing: the trainer closes its buffer."""


def _not_here(method: str) -> WrongStateError:
    return WrongStateError(f"ProcessRollouts: {method}: only the trainer's process can call this")


# ---------------------------------------------------------------------- in the trainer's process


class WorkerProcess(Closeable):
    """A worker in a process, and the thread that answers its requests.

    Args:
        build: builds the worker, in the process.
        name: name of the worker.
        buffer, statistics: receive its fragments and episodes.
        start_method: of the process, see `Child`.
        timeout_s: longest time without a sign of life, before which a worker must also be built.

    Raises:
        OSError, WorkerDiedError, WorkerTimeoutError: if the process cannot be started.
    """

    def __init__(
        self,
        build: BuildWorker,
        name: str,
        buffer: ReplayBufferInterface,
        statistics: EpisodeStatistics,
        *,
        start_method: str | None,
        timeout_s: float,
    ) -> None:
        self.name, self._buffer, self._statistics = name, buffer, statistics
        self._timeout_s = timeout_s
        self._status = WorkerStatus(name)
        self._layout: PublishedLayout | None = None
        self._weights: tuple[bytes, int] | None = None
        self._error: BaseException | None = None
        self._stop = self._closed = False
        self._built, self._ended = threading.Event(), threading.Event()
        self._child = Child(run_worker, (build, name), name=name, start_method=start_method)
        self._thread = threading.Thread(target=self._serve, name=f"{name}'s answers", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ the trainer's thread

    def await_built(self) -> None:
        """Wait until the worker is built. Raises the error of its builder."""
        self._built.wait()
        self.check()

    def check(self) -> None:
        """Raise the error that ended the worker, if there is one."""
        if self._error is not None:
            raise self._error

    def check_weights(self, weights: State) -> None:
        """Raise ValueError unless the worker can load weights."""
        assert self._layout is not None
        self._layout.check(weights)

    def publish(self, packed: bytes, version: int) -> None:
        """Have the worker load weights with its next answer."""
        self._weights = packed, version

    def status(self) -> WorkerStatus:
        """Return the last known status."""
        return self._status

    def stop(self) -> None:
        """Have the worker end after its current turn."""
        self._stop = True

    def close(self, timeout_s: float = 60.0) -> None:
        """End the worker after its current turn, and its process. Idempotent.

        Raises:
            WorkerTimeoutError: if the turn does not end in time. The process is killed.
        """
        if self._closed:
            return
        self.stop()
        in_time = False
        try:
            in_time = self._await_end(timeout_s)
        finally:
            self._closed = True
            if not in_time:
                # The thread, which waits for a request, then finds the process dead.
                self._child.kill()
            self._thread.join()
            self._child.end()
        if not in_time:
            raise WorkerTimeoutError(
                f"{self.name}: its turn did not end within {timeout_s:g} s of close(), so its process was "
                "killed; give its environments a shorter timeout_s"
            )

    def _await_end(self, timeout_s: float) -> bool:
        deadline = monotonic() + timeout_s
        # In slices: a Ctrl-C that arrives just before a wait begins is handled only after it.
        while not self._ended.wait(min(max(deadline - monotonic(), 0.0), 1.0)):
            if monotonic() >= deadline:
                return False
        return True

    # ------------------------------------------------------------------ the thread that answers

    def _serve(self) -> None:
        try:
            while self._answer():
                pass
        except BaseException as error:
            # Ended by `close`, which knows.
            if not self._closed:
                self._status.phase, self._status.reason = "died", str(error)
                self._error = error
        finally:
            # After the error: whoever sees these also sees it.
            self._built.set()
            self._ended.set()

    def _answer(self) -> bool:
        """Answer one request. Returns False after the last."""
        doing = "while it was built" if self._layout is None else "in a run"
        kind, content, episodes, known = pickle.loads(self._child.receive(self._timeout_s, doing))
        for task, traj in pickle.loads(episodes) if episodes else ():
            self._statistics.report([traj], task)
        done, failure = 0, None
        if kind == "add":
            try:
                done = self._buffer.add(*content)
            except Exception as error:  # the worker's sender raises it, as if the buffer were there
                failure = pack_exception(error)
        elif kind == "built":
            (self._layout,) = content
            self._built.set()
        else:
            self._set_status(content[0])
        weights = self._weights
        newer = weights if weights is not None and weights[1] > known else None
        answer = Answer(done, newer, self._stop, failure)
        self._child.send_bytes(pickle.dumps(answer), _ANSWER_S)
        return bool(kind != "ended")

    def _set_status(self, status: WorkerStatus) -> None:
        status.where = f"pid {self._child.pid}"
        self._status = status
