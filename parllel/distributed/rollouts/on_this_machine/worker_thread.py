"""A rollout worker in a thread of the trainer's process.

    trainer   load_weights -->  worker, which loads them between two turns; the first start the thread
              check        <--  the error that ended the thread
              close        -->  stop, then wait for the end of the current turn

Only the trainer calls these methods. The error is written before the thread ends, and never cleared, so
`check` reads it without a lock.
"""

from __future__ import annotations

import threading
from time import monotonic

from parllel.distributed.rollouts.arguments import check_kind, deadline_of
from parllel.distributed.rollouts.rollout_worker import RolloutWorker
from parllel.errors import ClosedError, WorkerTimeoutError, add_note
from parllel.types import Closeable, State

# Length of one wait: a Ctrl-C that arrives just before a wait begins is handled only after it.
_SLICE_S = 1.0
# Time that a failed worker may take to close its environments.
_MAX_END_S = 60.0


class WorkerThread(Closeable):
    """Runs a worker in a thread, from its first weights until it is closed.

    If it started earlier, it would collect experience with weights that are not the trainer's, such
    as the weights before a checkpoint was loaded. Threads share the interpreter lock, so they help
    if environments run in separate processes, or if most of the time is spent in PyTorch.

    Args:
        worker: the worker. `close` closes it, but not its sender.
        name: name of the thread, also used in messages.
    """

    def __init__(self, worker: RolloutWorker, *, name: str = "worker") -> None:
        check_kind("worker", worker, RolloutWorker)
        self.worker = worker
        self.name = name
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._error: BaseException | None = None
        self._begun = self._closed = False
        self._ended = threading.Event()

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:
            # The error may name an environment by its number, which is unique within its worker only.
            add_note(error, f"in {self.name}")
            # Kept for `check`: an exception that ends a thread is at best printed, and the run would go on.
            self._error = error
        finally:
            # After `_error`: whoever sees `_ended`, as `load_weights` does, also sees the error.
            self._ended.set()

    def load_weights(self, weights: State, version: int) -> bool:
        """Load weights into the worker; see `RolloutWorker.load_weights`.

        The first weights start the worker.

        Raises:
            ClosedError: after `close`.
            Exception: the error that ended the worker, or an error of `RolloutWorker.load_weights`.
        """
        self.check()
        if self._closed:
            raise ClosedError(f"{self.name}: load_weights: the worker is closed")
        # Before the thread starts, so that not a single step uses other weights.
        try:
            loaded = self.worker.load_weights(weights, version)
        except ClosedError:
            # A failed worker closes itself first, and `_error` is set only when its environments are closed.
            if self._begun:
                self._ended.wait(_MAX_END_S)
            self.check()
            raise
        if not self._begun:
            # Set first: a Ctrl-C in `start` leaves a running thread, which `close` must await.
            self._begun = True
            try:
                self._thread.start()
            except RuntimeError:
                # There are no more threads: `close` must not wait for one that never began.
                self._begun = False
                raise
        return loaded

    def check(self) -> None:
        """Raise the error that ended the worker, if there is one."""
        if self._error is not None:
            raise self._error

    def close(self, timeout_s: float = 60.0) -> None:
        """Stop after the current turn, and close the worker. Idempotent.

        Raises:
            WorkerTimeoutError: if the turn does not end in time.
        """
        deadline = deadline_of(f"{self.name}: close: timeout_s", timeout_s)
        # Before the wait, and even if it times out: no weights are accepted from now on.
        self._closed = True
        self.worker.stop()
        if self._begun:
            # Not `join` alone: before Python 3.13, a `join` interrupted by Ctrl-C marks the thread as ended.
            while not self._ended.wait(min(max(deadline - monotonic(), 0.0), _SLICE_S)):
                if monotonic() < deadline:
                    continue
                raise WorkerTimeoutError(
                    f"{self.name}: its turn did not end within {timeout_s:g} s of close(); give its "
                    "environments a shorter timeout_s"
                )
            self._thread.join()
        # Also if the thread never began. If it did, its run is over, so this does not wait.
        self.worker.close()
