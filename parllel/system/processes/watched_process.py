"""A process, whatever started it: watched, and ended with all that it has started.

    this process                                  the process, in a group of its own
    died       <------ process descriptor ------  readable once it has ended
    exit_text  <------ exit code ---------------  from what started it: only that may collect the process
    end        ------- 1. nothing: it was asked to leave in its own language, and has `grace_s` for it
               ------- 2. SIGTERM to the group --> its programs may tidy up
               ------- 3. SIGKILL to the group --> and to descendants in groups and sessions of their own

The list of its descendants is taken before the first signal: the children of one that has ended are others'.
What a crashed process left is found by a mark that all its programs carry in their environment.
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

# For what a program does on SIGTERM; a Python child ends at once, so it seldom passes.
TERMINATE_S = 0.5
_EXIT_CODE_S = 0.5  # the exit code follows the end within milliseconds
# And the end that of the pipe, but an interpreter first gives up all that it holds.
_LAST_WORDS_S = 3.0
# Weak: one that is forgotten is ended by `__del__`, which a reference in here would put off to the exit.
_living: weakref.WeakSet[WatchedProcess] = weakref.WeakSet()


class StartedProcess(Protocol):
    """What a process is watched by, as `multiprocessing.Process` has it."""

    @property
    def pid(self) -> int | None:
        """Its process id."""

    @property
    def sentinel(self) -> int:
        """Handle that becomes ready when it ends; used where the system has no process descriptors."""

    @property
    def exitcode(self) -> int | None:
        """Its exit code, -N after signal N; None while it runs."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for the exit code."""

    def kill(self) -> None:
        """Kill the process alone; used where there are no process groups."""

    def close(self) -> None:
        """Release what belongs to it; ValueError if it still runs."""


class WatchedProcess:
    """A running process: whether it lives, how it ended, and its end in stages.

    Args:
        process: leads a process group of its own, or will in an instant.
        name: what error messages call it.
        mark: of the `environment_mark` that it was started with, to find what it leaves when it ends.
        ends_descendants: whether it ends what it has started before it leaves with exit code 0.

    `end()` is idempotent, is called at interpreter exit, and leaves no process of the group.
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
        # Whether `end` has cleaned up; from then on only the exit code is known.
        self._is_clean = False
        self._exit_code: int | None = None
        self._known: list[ProcessEntry] | None = None  # what was below it before a signal
        # What started the process sends the code once: a second thread that reads it finds the end of a pipe,
        # and would report another code. Reentrant: the collector may end a process in any thread.
        self._exit_lock = threading.RLock()
        self._owner = os.getpid()  # only that process may end it: a fork has a copy of this object
        # A descriptor stays with this very process, while its number may be given to another one.
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
        """Return at once whether the process has ended, by itself or by `end`."""
        return self._ended or self._await_death(0.0)

    def exit_text(self) -> str:
        """Return how the process ended, in words."""
        code = self._await_exit(_LAST_WORDS_S)
        if code is None:
            return "stopped answering"  # it runs, but has closed its end of the pipe, or is stopped
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def _await_death(self, timeout_s: float) -> bool:
        return bool(wait([self.sentinel], timeout_s))

    def _await_exit(self, timeout_s: float) -> int | None:
        """Wait for the end of the process and return its exit code, None if it runs on.

        `join` alone would also wait for a grandchild that holds what it watches.
        """
        # First: a fork server that was killed reports an end of what it started, which may run on.
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
        """Do what lets the process leave by itself; do not wait for it."""

    def terminate(self) -> None:
        """Send SIGTERM to the process and its group, unless it has ended; do not wait."""
        if hasattr(os, "killpg") and os.getpid() == self._owner and not self._await_death(0.0):
            # Before the signal: the system gives the children of one that has ended to another process.
            self._known = self._below()
            self._signal_group(signal.SIGTERM)

    def end(self, grace_s: float = 2.0) -> None:
        """Wait `grace_s` for the process to leave by itself, then terminate it, then kill it and its group.

        Without a grace it is killed at once.
        """
        if not self._begin_end():
            return
        try:
            if grace_s > 0 and not self._await_death(grace_s):
                self.terminate()
                self._await_death(TERMINATE_S)
        finally:  # a second Ctrl-C cuts the grace short
            self._kill_all()
            self._finish_end()

    def _begin_end(self) -> bool:
        """Return whether the caller is to end it: the first who asks, in the process that owns it."""
        if self._ended:
            return False
        # First: a second call, as from an exit function or a signal handler, has nothing to do.
        self._ended = True
        _living.discard(self)
        # A forked copy: the process is not ours to end.
        return os.getpid() == self._owner

    def _kill_all(self) -> None:
        """Kill the process, its group and what is below it; do not wait."""
        if self._known is None:
            self._known = self._below()
        # The group even if its leader has left: what it started may still be in there.
        self._kill_group()
        kill_all(self._known)

    def _finish_end(self) -> None:
        self._clean_up()
        if hasattr(os, "killpg"):
            # Last, when all are dead: those whose parent is now this process would stay as zombies.
            collect(self.pid, self._known or [])

    def _below(self) -> list[ProcessEntry]:
        """Return what the process has started, also in sessions and groups of their own."""
        # Too many open files, perhaps: the group is killed all the same.
        with contextlib.suppress(OSError):
            if not self._await_death(0.0):
                below = descendants(self.pid)
                # Asked again, as it may have ended in between. Its entry as well: once its main thread has
                # been killed its children are others', though the process counts as alive for as long as its
                # other threads take to end.
                if process_runs(self.pid) and not self._await_death(0.0):
                    return below
                self._await_death(_EXIT_CODE_S)
            # The children of one that has ended are others' by now.
            if not self._ends_descendants or self._await_exit(_EXIT_CODE_S) != 0:
                return marked(self._mark)
        return []

    def _clean_up(self) -> None:
        try:
            # Killed, it ends within milliseconds, unless the kernel holds it, as for a network disk.
            self._await_exit(5.0)
        finally:
            with self._exit_lock:  # which another thread may just be reading
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
        # The process leads a group of its own; until it has got so far only the process itself exists.
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if send is os.killpg or not self._await_death(0.0):
                    send(self.pid, number)

    def disown(self, why: str) -> None:
        """Leave the process to its owner, in a fork that has a copy of this object."""
        # A thread that the fork lacks may hold the copy for ever.
        self._exit_lock = threading.RLock()
        _living.discard(self)  # a fork that exits would otherwise end the workers of its parent
        if self._ended:
            return
        self._ended, self._why_ended = True, why
        # The exit code comes once, over a pipe that both have, and is for the owner. multiprocessing looks
        # for it as well, in all processes that it has started.
        self._is_clean = True
        with contextlib.suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.dup2(nothing, self._process.sentinel, inheritable=False)
            finally:
                os.close(nothing)

    def check_open(self) -> None:
        """Raise ClosedError after `end`, and in a fork of the owner."""
        if self._ended:
            raise ClosedError(f"{self.name}: {self._why_ended}")

    def __del__(self) -> None:
        # By getattr: a constructor may have failed before it set anything.
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
        # One that a thread is ending at this moment must not keep the others alive.
        with contextlib.suppress(Exception):
            process.kill()


# After multiprocessing's own exit function, so before it: that one would wait for our children.
atexit.register(_end_all)
