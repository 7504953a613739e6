"""Supervision of one worker in processes of this machine: what dies is started again.

    SupervisedWorker, a thread of the trainer's process for each worker
        answers the requests of the current WorkerProcess until it ends or dies
        writes  -->  Desk: how each start went, warnings, and errors that end the run  -->  trainer's thread
        close   <--  trainer's thread, which may kill the current process

`_lock` guards the current process, so that `close` kills each process that is started.
"""

from __future__ import annotations

import threading
from time import monotonic

from parllel.distributed.rollouts.on_this_machine.worker_process import Desk, WorkerProcess
from parllel.distributed.rollouts.rollout_worker import BuildWorker, worker_name
from parllel.distributed.rollouts.worker_end import WorkerEnd
from parllel.errors import RestartsUsedUpError, WorkerError
from parllel.system.processes.exceptions import pack_exception, raise_packed
from parllel.system.processes.restart_budget import RestartBudget

# Length of one wait: a Ctrl-C that arrives just before a wait begins is handled only after it.
_SLICE_S = 0.5


class SupervisedWorker:
    """Keeps one worker running in a process, within a budget of restarts.

    Args:
        build: builds the worker, in the process.
        number: number of the worker.
        desk: shared with the trainer.
        budget: restarts of this worker.
        start_method, timeout_s: arguments of `WorkerProcess`.

    Attributes:
        settled: set once the first start is built or over.
    """

    def __init__(
        self,
        build: BuildWorker,
        number: int,
        desk: Desk,
        budget: RestartBudget,
        *,
        start_method: str | None,
        timeout_s: float,
    ) -> None:
        self.number, self._build, self._desk, self._budget = number, build, desk, budget
        self._start_method, self.timeout_s = start_method, timeout_s
        self.settled, self._over = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._process: WorkerProcess | None = None
        self._kills = False
        name = worker_name(number, 1)
        # Recorded here, so that statuses are in the order of the workers.
        desk.records.begin(name)
        self._thread = threading.Thread(target=self._run, name=f"{name}'s answers", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ the trainer's thread

    def await_settled(self) -> None:
        """Wait until the first start is built or over, which `timeout_s` limits."""
        while not self.settled.wait(_SLICE_S):
            pass

    def close(self, deadline: float) -> bool:
        """Wait for the end of the worker, which has been told to stop. Idempotent.

        deadline: monotonic time at which its process is killed.

        Returns:
            False if it was killed.
        """
        in_time = False
        try:
            while not (in_time := self._over.wait(min(max(deadline - monotonic(), 0.0), _SLICE_S))):
                if monotonic() >= deadline:
                    break
        finally:
            # Also after Ctrl-C. The thread, which waits for a request, then finds the process dead.
            if not in_time:
                with self._lock:
                    self._kills, process = True, self._process
                if process is not None:
                    process.child.kill()
            self._thread.join()
        return in_time

    # ------------------------------------------------------------------ the thread that answers

    def _run(self) -> None:
        try:
            self._supervise()
        except Exception as error:
            self._desk.notices.append(error)
        finally:
            # After the notice: whoever sees these also sees it.
            self.settled.set()
            self._over.set()

    def _supervise(self) -> None:
        desk, start = self._desk, 0
        while not desk.stopping.is_set():
            start += 1
            name = worker_name(self.number, start)
            if start > 1:
                desk.records.begin(name)
            end = self._end_of(name)
            if end is None:
                desk.records.end(name, "ended", "")
                return
            if desk.stopping.is_set():
                late = "killed, as it did not end in time"
                desk.records.end(name, "died", late if self._kills else end.text)
                return
            if end.kind == "parked":
                self._park(name, end.text)
                return
            if end.kind == "raised" and start == 1:
                # Taken for a mistake in the script. At a later start, the script has worked, so the error
                # may be transient, such as a full disk.
                desk.records.end(name, "died", end.text)
                raise_packed(end.error, name)
            if end.kind == "unbuilt":
                desk.notices.append(f"{name} could not be built: {end.text}")
            elif end.kind == "raised":
                desk.notices.append(f"{name} raised, and is started again: {end.text}")
            self.settled.set()
            # The message about a dead process begins with the name.
            reason = end.text if end.kind == "died" else f"{name}: {end.text}"
            try:
                pause_s = self._budget.restart(reason)
            except RestartsUsedUpError as used_up:
                self._park(name, str(used_up))
                return
            # Once, and last: from here on it may be summed up with others.
            desk.records.end(name, "died", end.text)
            desk.stopping.wait(pause_s)

    def _end_of(self, name: str) -> WorkerEnd | None:
        """Run one start. Returns how it ended, or None if it was told to."""
        try:
            return self._run_once(name)
        # Of the process itself: what its worker raised is returned.
        except WorkerError as death:
            return WorkerEnd("died", pack_exception(death), str(death))
        except Exception as error:
            return WorkerEnd.of(error, built=True)

    def _run_once(self, name: str) -> WorkerEnd | None:
        """Start the worker, and answer its requests until it has ended. Returns its error, if any."""
        process = WorkerProcess(
            self._build,
            name,
            self._desk,
            start_method=self._start_method,
            timeout_s=self.timeout_s,
        )
        with self._lock:
            self._process, kills = process, self._kills
        try:
            if kills:
                process.child.kill()
            while (ended := process.answer()) is None:
                if process.built:
                    self.settled.set()
            # It has nothing left to do but to exit.
            process.child.end()
            return ended[0]
        finally:
            # After an error it may still run: it must not go on next to its replacement.
            process.child.kill()

    def _park(self, name: str, reason: str) -> None:
        self._desk.records.end(name, "parked", reason)
        self._desk.notices.append(f"{name} is parked: {reason}")
