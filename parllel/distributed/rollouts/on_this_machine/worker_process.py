"""A rollout worker in a process of its own, and what answers it in the trainer's process.

    worker's process                                          trainer's process, a thread for each worker
        sender thread    add: fragments, episodes  ---->      ReplayBuffer.add, EpisodeStatistics.report
        follower         report: status, episodes  ---->      EpisodeStatistics.report
        both             newest weights, stop      <----      what `load_weights` and `close` have left
        main thread      ended: its error, if any  ---->      the supervisor, which may start another process

Each request has one answer, and the process makes one request at a time. Every answer brings the newest
weights if the process does not have them: a worker that adds fragments has new weights as soon as it has
added the next one. The follower's reports are also the sign that the process lives.

A request is two messages, a `Head` and its content. The head has the counters of the worker's sender: if the
process dies while it writes the content, the fragments in it are known, and counted as lost.
"""

from __future__ import annotations

import math
import pickle
import threading
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle

from parllel.distributed.rollouts.arguments import check_kind
from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.fragments.sample_fragment import SampleFragment
from parllel.distributed.rollouts.published_parts import PublishedLayout
from parllel.distributed.rollouts.rollout_worker import BuildWorker, RolloutWorker, WorkerContext
from parllel.distributed.rollouts.worker_end import WorkerEnd
from parllel.distributed.rollouts.worker_records import WorkerRecords
from parllel.errors import ClosedError, WrongStateError
from parllel.system.processes.child import Child
from parllel.system.processes.exceptions import pack_exception, raise_packed
from parllel.system.processes.pipe_end import PipeEnd

# Pause between reports: before the first weights, for which the run waits, and afterwards.
_FIRST_REPORT_S, _REPORT_S = 0.02, 0.25
# The pipe takes an answer at once; a process that is stopped does not.
_ANSWER_S = 30.0


class Head(NamedTuple):
    """The beginning of a request.

    Attributes:
        kind: "built", "report", "add" or "ended".
        known: version of the weights that the process has.
        counts: counters of the sender's ledger.
        episodes: packed episodes that have ended since the last request.
    """

    kind: str
    known: int
    counts: dict[str, int]
    episodes: bytes


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
    # The trainer warns, from the status: here the terminal would show it in the middle of a progress bar.
    warnings.filterwarnings("ignore", r"environment \d+ is parked", RuntimeWarning)
    line = _Line(connection, EpisodeStatistics())
    end = None
    try:
        _run_worker(line, build, name)
    except BaseException as error:
        end = WorkerEnd.of(error, built=line.worker is not None)
    # The worker and what its builder pushed are closed: the last fragments and counts are known.
    line.ask("ended", None if line.worker is None else line.worker.status(), end)


def _run_worker(line: _Line, build: BuildWorker, name: str) -> None:
    with ExitStack() as stack:
        worker = build(WorkerContext(name, _Storage(line), line.statistics, stack))
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


class _Line:
    """Requests of this process, one at a time. Each brings the episodes that have ended since the last."""

    def __init__(self, connection: Connection, statistics: EpisodeStatistics) -> None:
        self._pipe, self._lock = PipeEnd(connection), threading.Lock()
        self.statistics = statistics
        self.worker: RolloutWorker | None = None
        self._known = 0
        self.stopping = False
        self.weights_came = threading.Event()  # or the end

    def ask(self, kind: str, *content: Any) -> int:
        """Make a request, and load the weights that its answer brings.

        Returns the number of fragments that were handled.
        """
        # Only these may be of a script's own classes; cloudpickle takes longer.
        episodes = self.statistics.drain_tasks()
        packed = cloudpickle.dumps(episodes) if episodes else b""
        message = pickle.dumps(content, protocol=5)
        sender = None if self.worker is None else self.worker.sender
        with self._lock:
            counts = {} if sender is None else sender.ledger.counts()
            # Without limits: if the trainer's process ends, so does this one.
            self._pipe.write(pickle.dumps(Head(kind, self._known, counts, packed)), math.inf)
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


class Desk:
    """What the trainer and the threads that answer its workers share.

    Attributes:
        buffer, statistics: receive fragments and episodes.
        records: statuses of all starts of all workers.
        handled: number of fragments that the buffer has handled, by the name of the start. Each is written
            by the thread of its worker, before the record of its end.
        notices: warnings, and errors that end the run, in order. Only added to.
        layout: layout of the weights; None until a worker is built. Workers share one script, so the first
            holds for all.
        weights: newest weights, packed, and their version.
        stopping: set once the workers should end.
    """

    def __init__(self, buffer: ReplayBufferInterface, statistics: EpisodeStatistics) -> None:
        self.buffer, self.statistics = buffer, statistics
        self.records = WorkerRecords()
        self.handled: dict[str, int] = {}
        self.notices: list[str | Exception] = []
        self.layout: PublishedLayout | None = None
        self.weights: tuple[bytes, int] | None = None
        self.stopping = threading.Event()


class WorkerProcess:
    """One start of a worker: a process, and the answers to its requests.

    Args:
        build: builds the worker, in the process.
        name: name of this start.
        desk: where requests are handled.
        start_method: of the process, see `Child`.
        timeout_s: longest time without a sign of life, before which a worker must also be built.

    Raises:
        OSError, WorkerDiedError, WorkerTimeoutError: if the process cannot be started.
    """

    def __init__(
        self,
        build: BuildWorker,
        name: str,
        desk: Desk,
        *,
        start_method: str | None,
        timeout_s: float,
    ) -> None:
        self.name, self._desk = name, desk
        self.timeout_s = timeout_s
        self.built = False
        self.child = Child(run_worker, (build, name), name=name, start_method=start_method)
        desk.handled[name] = 0

    def answer(self) -> tuple[WorkerEnd | None] | None:
        """Answer one request. Returns None, or after the last request how the worker ended.

        Raises:
            WorkerDiedError, WorkerTimeoutError: if the process has died, or gives no sign of life.
            Exception: if its episodes cannot be unpacked here.
        """
        doing = "in a run" if self.built else "while it was built"
        desk = self._desk
        head: Head = pickle.loads(self.child.receive(self.timeout_s, doing))
        if head.counts:
            desk.records.note_counts(self.name, head.counts)
        content = pickle.loads(self.child.receive(self.timeout_s, doing))
        for task, traj in pickle.loads(head.episodes) if head.episodes else ():
            desk.statistics.report([traj], task)
        done, failure, end = 0, None, None
        if head.kind == "add":
            try:
                done = desk.buffer.add(*content)
                # Before the answer: the process may have died meanwhile, but these are in the buffer.
                desk.handled[self.name] += done
            except Exception as error:  # the worker's sender raises it, as if the buffer were there
                failure = pack_exception(error)
        elif head.kind == "built":
            desk.layout = desk.layout or content[0]
            self.built = True
        else:
            status, *rest = content
            if status is not None:
                status.where = f"pid {self.child.pid}"
                for reason in desk.records.note(status):
                    desk.notices.append(f"{self.name}: {reason}")
            if head.kind == "ended":
                end = (rest[0],)
        newest = desk.weights
        newer = newest if newest is not None and newest[1] > head.known else None
        answer = Answer(done, newer, desk.stopping.is_set(), failure)
        self.child.send_bytes(pickle.dumps(answer), _ANSWER_S)
        return end
