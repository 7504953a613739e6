"""Base class of processes that are watched, and ended together with everything that they have started.

    this process                                  the process, in its own group
    died       <------ process descriptor ------  readable once it has ended
    exit_text  <------ exit code ---------------  from its starter, which alone may collect the process
    end        ------- 1. nothing: it was asked to exit by other means, and has `grace_s` for it
               ------- 2. SIGTERM to the group --> its programs may clean up
               ------- 3. SIGKILL to the group --> and to descendants in other groups and sessions

Descendants are listed before the first signal, as the children of an ended process get another parent. What a
crashed process leaves is found by a mark in the environment of all its programs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import weakref
from multiprocessing.connection import wait
from typing import Protocol

from parllel.errors import ClosedError
from parllel.system.processes.orphans import collect, kill_all, marked
from parllel.system.processes.owned import own
from parllel.system.processes.process_table import ProcessEntry, descendants, process_runs

# For a program's SIGTERM handler; rarely used up, as a Python child ends immediately.
TERMINATE_S = 0.5
_EXIT_CODE_S = 0.5  # the exit code follows the end of the process within milliseconds
# The end follows that of the pipe, but an interpreter first tears down its objects.
_LAST_WORDS_S = 3.0
# Weak, so that an unreferenced process is ended by `__del__` and not only at exit.
_living: weakref.WeakSet[WatchedProcess] = weakref.WeakSet()


class StartedProcess(Protocol):
    """Interface of a started process, a subset of `multiprocessing.Process`."""

    @property
    def pid(self) -> int | None:
        """Process id."""

    @property
    def sentinel(self) -> int:
        """Handle that becomes ready at its end; used on systems without process descriptors."""

    @property
    def exitcode(self) -> int | None:
        """Exit code, -N after signal N; None while it runs."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for the exit code."""

    def kill(self) -> None:
        """Kill only this process; used on systems without process groups."""

    def close(self) -> None:
        """Release its resources. Raises ValueError if it still runs."""


class WatchedProcess:
    """A running process: liveness, exit code, and ending in stages.

    Args:
        process: the started process, which leads its own process group, or is about to.
        name: name for messages.
        mark: argument of the `environment_mark` that it was started with, to find its leftovers.
        ends_descendants: whether it ends its descendants before it exits with code 0.

    `end()` is idempotent, runs at interpreter exit, and leaves no process of the group.
    """

    def __init__(
        self, process: StartedProcess, *, name: str, mark: str, ends_descendants: bool = False
    ) -> None:
        self.name = name
        self.pid = process.pid or 0
        assert self.pid > 0, "a process that was not started: its group would be ours"
        self._process = process
        self._mark = mark
        self._ends_descendants = ends_descendants
        self._ended = False
        self._why_ended = "used after it was closed"  # for messages
        # Whether `end` has cleaned up; afterwards only the exit code is known.
        self._is_clean = False
        self._exit_code: int | None = None
        self._known: list[ProcessEntry] | None = None  # descendants before the first signal
        # The exit code is sent only once: a second thread that reads it would find the end of a pipe, and
        # report a wrong code. Reentrant, as the garbage collector may end a process in any thread.
        self._exit_lock = threading.RLock()
        self._owner = (
            os.getpid()
        )  # only this process may end it, not a fork with a copy of this object
        # A descriptor refers to exactly this process, while its id may be reused.
        self._pidfd = _open_pidfd(self.pid)
        _living.add(self)
        own(self)

    # ------------------------------------------------------------------ watching

    @property
    def sentinel(self) -> int:
        """Descriptor or handle that becomes ready when the process ends."""
        return self._pidfd if self._pidfd >= 0 else int(self._process.sentinel)

    @property
    def ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return not self.died()

    def died(self) -> bool:
        """Return without waiting whether the process has ended, by itself or by `end`."""
        return self._ended or self._await_death(0.0)

    def exit_text(self) -> str:
        """Describe how the process ended."""
        code = self._await_exit(_LAST_WORDS_S)
        if code is None:
            return "stopped answering"  # it runs, but has closed its end of the pipe or is stopped
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def _await_death(self, timeout_s: float) -> bool:
        return bool(wait([self.sentinel], timeout_s))

    def _await_exit(self, timeout_s: float) -> int | None:
        """Wait for the end of the process; return its exit code, or None if it is still running.

        `join` alone would also wait for a grandchild that holds the descriptor it watches.
        """
        # First: a killed fork server reports the end of its children, which may still be running.
        if not self._is_clean and not self._await_death(timeout_s):
            return None
        with self._exit_lock:
            if not self._is_clean and self._exit_code is None:
                if self._process.exitcode is None:
                    self._process.join(timeout_s)  # the fork server has yet to report the code
                self._exit_code = self._process.exitcode
            return self._exit_code

    # ------------------------------------------------------------------ ending

    def kill(self) -> None:
        """Kill the process and its group at once, then clean up."""
        self.end(grace_s=0.0)

    def begin_exit(self) -> None:
        """Ask the process to exit by itself, without waiting for it."""

    def terminate(self) -> None:
        """Send SIGTERM to the process and its group, unless it has ended, without waiting."""
        if hasattr(os, "killpg") and os.getpid() == self._owner and not self._await_death(0.0):
            # Before the signal, as the children of an ended process get another parent.
            self._known = self._below()
            self._signal_group(signal.SIGTERM)

    def end(self, grace_s: float = 2.0) -> None:
        """Wait `grace_s` for the process to exit by itself, then terminate it, then kill it and its group.

        With 0 it is killed immediately.
        """
        if not self._begin_end():
            return
        try:
            if grace_s > 0 and not self._await_death(grace_s):
                self.terminate()
                self._await_death(TERMINATE_S)
        finally:  # a second Ctrl-C ends the grace period
            self._kill_all()
            self._finish_end()

    def _begin_end(self) -> bool:
        """Return whether the caller must end the process: true once, and only in the owning process."""
        if self._ended:
            return False
        # Set first: a second call, e.g. from an exit function or a signal handler, must do nothing.
        self._ended = True
        _living.discard(self)
        # A fork must not end its parent's process.
        return os.getpid() == self._owner

    def _kill_all(self) -> None:
        """Kill the process, its group and its descendants, without waiting."""
        if self._known is None:
            self._known = self._below()
        # The group even if its leader has ended, as other members may live.
        self._kill_group()
        kill_all(self._known)

    def _finish_end(self) -> None:
        self._clean_up()
        if hasattr(os, "killpg"):
            # Last, when all are dead: those adopted by this process would stay as zombies.
            collect(self.pid, self._known or [])

    def _below(self) -> list[ProcessEntry]:
        """Return the descendants of the process, including those in other sessions and groups."""
        # OSError, e.g. for too many open files: the group is still killed.
        with contextlib.suppress(OSError):
            if not self._await_death(0.0):
                below = descendants(self.pid)
                # Checked again, as it may have ended in between. Its entry too: once its main thread has been
                # killed its children have another parent, though the process counts as alive until its other
                # threads have ended.
                if process_runs(self.pid) and not self._await_death(0.0):
                    return below
                self._await_death(_EXIT_CODE_S)
            # It has ended, so its children have another parent by now, and are found by the mark.
            if not self._ends_descendants or self._await_exit(_EXIT_CODE_S) != 0:
                return marked(self._mark)
        return []

    def _clean_up(self) -> None:
        try:
            # After SIGKILL it ends within milliseconds, unless the kernel blocks it, e.g. on a network disk.
            self._await_exit(5.0)
        finally:
            with self._exit_lock:  # another thread may be reading the exit code
                self._is_clean = True
                if self._pidfd >= 0:
                    os.close(self._pidfd)
                    self._pidfd = -1
                with contextlib.suppress(ValueError):  # still running: unkillable, in the kernel
                    self._process.close()

    def _kill_group(self) -> None:
        if hasattr(os, "killpg"):
            self._signal_group(signal.SIGKILL)
        else:
            self._process.kill()

    def _signal_group(self, number: int) -> None:
        # Once to each process: a second SIGTERM would end a run that is writing its checkpoint.
        in_group = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            in_group = os.getpgid(self.pid) == self.pid
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        # If the process has not yet made its own group, only the process itself exists.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not in_group and not self._await_death(0.0):
                os.kill(self.pid, number)

    def disown(self, why: str) -> None:
        """Leave the process to its owner, in a fork of the owner."""
        # Replaced, as a thread that the fork lacks may hold the copied lock for ever.
        self._exit_lock = threading.RLock()
        _living.discard(self)  # otherwise the fork would end its parent's workers at exit
        if self._ended:
            return
        self._ended, self._why_ended = True, why
        # The exit code arrives once, over a pipe that both share, and belongs to the owner. multiprocessing
        # polls it too, for all processes that it has started, so the pipe is replaced by /dev/null here.
        self._is_clean = True
        with contextlib.suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.dup2(nothing, self._process.sentinel, inheritable=False)
            finally:
                os.close(nothing)

    def check_open(self) -> None:
        """Check that the process can be used. Raises ClosedError after `end`, and in a fork of the owner."""
        if self._ended:
            raise ClosedError(f"{self.name}: {self._why_ended}")

    def __del__(self) -> None:
        # getattr, as the constructor may have failed before it set the attribute.
        if not getattr(self, "_ended", True):
            with contextlib.suppress(Exception):
                self.kill()


def _open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when the process ends, or -1."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return -1


def _end_all() -> None:
    for process in list(_living):
        # Errors of one process, e.g. one that a thread is just ending, must not keep the others alive.
        with contextlib.suppress(Exception):
            process.kill()


# Registered after multiprocessing's exit function, and so called before it, as that one waits for our
# children.
atexit.register(_end_all)
