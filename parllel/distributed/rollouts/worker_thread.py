"""A rollout worker beside the trainer, in a thread of its process.

    trainer   load_weights -->  worker, which takes them between two turns; the first start the thread
              check        <--  what ended the thread
              close        -->  stop, then wait for the end of the present turn

The trainer alone calls these methods. The error is written before the thread ends, and is never taken back.
"""

from __future__ import annotations

import threading
from time import monotonic

from parllel.distributed.rollouts.arguments import check_kind, deadline_of
from parllel.distributed.rollouts.rollout_worker import RolloutWorker
from parllel.errors import ClosedError, WorkerTimeoutError, add_note
from parllel.types import Closeable, State

# A Ctrl-C that comes just before a wait begins is seen after it.
_SLICE_S = 1.0
# How long a worker that has failed may take to close its environments.
_MAX_END_S = 60.0


class WorkerThread(Closeable):
    """Run a worker in a thread, from the first weights that it is given until it is closed.

    Before that it would make experience with weights that are not the trainer's, those before a checkpoint,
    for example. Threads share the interpreter: they gain where environments are in processes of their own,
    or where PyTorch computes for longer than Python does.

    Args:
        worker: closed with the thread; its sender is not.
        name: of the thread, and in messages.
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
            # Numbers of environments are those of a worker, of which there are several.
            add_note(error, f"in {self.name}")
            # Kept for `check`: what a thread raises goes to the terminal at best, and the run would go on.
            self._error = error
        finally:
            self._ended.set()

    def load_weights(self, weights: State, version: int) -> bool:
        """Give the worker weights, and start it if they are the first; see `RolloutWorker.load_weights`.

        Raises:
            ClosedError: after `close`.
            Exception: what ended the worker, or as `RolloutWorker.load_weights`.
        """
        self.check()
        if self._closed:
            raise ClosedError(f"{self.name}: load_weights: the worker is closed")
        # First, so that not even one step is made with others.
        try:
            loaded = self.worker.load_weights(weights, version)
        except ClosedError:
            # An error closes the worker, and reaches `check` only once its environments are closed too.
            if self._begun:
                self._ended.wait(_MAX_END_S)
            self.check()
            raise
        if not self._begun:
            self._begun = True
            self._thread.start()
        return loaded

    def check(self) -> None:
        """Raise what ended the worker, if anything did; give this to `FragmentSampler` as `check_workers`."""
        if self._error is not None:
            raise self._error

    def close(self, timeout_s: float = 60.0) -> None:
        """Stop after the present turn, and close the worker; may be called twice.

        Raises:
            WorkerTimeoutError: if the turn does not end in time.
        """
        deadline = deadline_of(f"{self.name}: close: timeout_s", timeout_s)
        self._closed = True
        self.worker.stop()
        if self._begun:
            # Not `join` alone: in Python below 3.13, one that Ctrl-C interrupts takes the thread for ended.
            while not self._ended.wait(min(max(deadline - monotonic(), 0.0), _SLICE_S)):
                if monotonic() < deadline:
                    continue
                raise WorkerTimeoutError(
                    f"{self.name}: its turn did not end within {timeout_s:g} s of close(); give its "
                    "environments a shorter timeout_s"
                )
            self._thread.join()
        self.worker.close()
