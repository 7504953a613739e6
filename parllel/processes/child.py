"""A child process: started, watched, spoken to over a pipe, and ended.

    parent                                        child
    Child(target, args) --- start, payload -----> target(connection, *args)
    send_bytes          ------- requests ------->
    receive             <------ replies ---------  (an exception is a reply of its own kind)
    death               <------ process descriptor becomes readable
                        ------- liveness pipe hangs up -----> killed with its process group

The parent closes its copy of the child's end of the pipe and waits on the child's process descriptor as
well, so it notices a death at once even while a grandchild still holds the pipe.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import secrets
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from parllel.errors import ClosedError, WorkerDiedError, WorkerError, WorkerTimeoutError
from parllel.limits import limits_explained
from parllel.processes.channel import Channel
from parllel.processes.exceptions import raise_packed
from parllel.processes.in_child import EXCEPTION, run_child
from parllel.processes.launch import check_start_method, start_lean
from parllel.processes.liveness import liveness_connection
from parllel.processes.orphans import collect, kill_all, marked
from parllel.processes.process_table import ProcessEntry, descendants

_living: weakref.WeakSet[Child] = weakref.WeakSet()


class Child:
    """One child process that runs `target(connection, *args)`.

    Args:
        target, args: travel by cloudpickle, so lambdas and classes of a notebook work.
        inherited: objects handed over as multiprocessing does at the start of a process (arrays in
            shared memory); the target gets them as a keyword argument of that name if given.
        name: what error messages call the child.
        start_method: "fork", "forkserver" or "spawn"; default forkserver where it exists.

    Raises:
        ValueError: for a start method that the platform does not have.
        OSError: if a limit of open files, processes or memory is reached; says which.
        WorkerTimeoutError, WorkerDiedError: if the fork server does not answer, or ended.

    `end()` is idempotent, is called at interpreter exit, and leaves no process of the child's group.
    """

    def __init__(
        self,
        target: Callable[..., None],
        args: tuple[Any, ...] = (),
        *,
        inherited: Any = None,
        name: str = "child",
        start_method: str | None = None,
    ) -> None:
        self.name = name
        self.start_method = check_start_method(start_method)
        self._ended = False
        self._owner = os.getpid()
        self._mark = secrets.token_hex(16)
        self._threads = _other_threads() if self.start_method == "fork" else 0
        payload = cloudpickle.dumps((target, args))
        try:
            with limits_explained(f"{name}: could not start its process, which takes 4 open files"):
                self._start(payload, inherited)
        except WorkerError as error:  # of the fork server
            raise type(error)(f"{name}: could not start its process: {error}") from None
        self.pid = int(self._process.pid or 0)
        self._pidfd = _open_pidfd(self.pid)
        self._channel = Channel(self.connection, self.sentinel)

    def _start(self, payload: bytes, inherited: Any) -> None:
        mine, theirs = multiprocessing.Pipe(duplex=True)
        # Registered before the start: a fork copies our end of the pipe, and the child closes it.
        self.connection: Connection = mine
        _living.add(self)
        liveness = None
        try:
            liveness = liveness_connection()
            environ = dict(os.environ) if self.start_method == "forkserver" else None
            self._process = start_lean(
                self.start_method,
                run_child,
                (theirs, liveness, environ, self._mark, payload, inherited),
            )
        except BaseException:
            self._ended = True
            mine.close()
            raise
        finally:
            theirs.close()
            if liveness is not None:
                liveness.close()

    # ------------------------------------------------------------------ talking

    def send_bytes(self, message: bytes, timeout_s: float = 60.0) -> None:
        """Send a request.

        Raises:
            ClosedError: after `end()`.
            WorkerTimeoutError: if the child did not take it in `timeout_s`.
            WorkerDiedError: if the child is gone. A reply that it left behind can still be received.
        """
        self._check_open()
        try:
            self._channel.write(message, timeout_s)
        except TimeoutError:
            raise self._not_taken(timeout_s) from None
        except (BrokenPipeError, ConnectionResetError):
            raise self._died("before it took the next request") from None

    def send_handles(self, sends: Sequence[Callable[[], None]], timeout_s: float) -> None:
        """Call what sends descriptors over `connection`, each once there is room for it.

        Raises: as `send_bytes`.
        """
        self._check_open()
        try:
            for send in sends:
                self._channel.await_room(timeout_s)
                send()
        except TimeoutError:
            raise self._not_taken(timeout_s) from None
        except (BrokenPipeError, ConnectionResetError):
            raise self._died("before it took the next request") from None

    def receive(self, timeout_s: float, doing: str) -> bytes:
        """Return the next reply.

        doing: what the child was asked to do, for messages.

        Raises:
            WorkerTimeoutError: if nothing came in `timeout_s`.
            WorkerDiedError: if the child died without a reply.
            Exception: what the child raised, as itself.
        """
        self._check_open()
        try:
            message = self._channel.read(timeout_s)
        except TimeoutError:
            raise self._late(timeout_s, doing) from None
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise self._died(doing) from None
        if message[:1] == EXCEPTION:
            raise_packed(message[1:], f"{self.name}, process {self.pid}, {doing}")
        return message

    def receive_handles(
        self, receive: Callable[[Callable[[], None]], None], timeout_s: float, doing: str
    ) -> None:
        """Call what reads descriptors from `connection`; it calls what it is given before each of them.

        Raises: as `receive` does, where one would be waited for too long, or in vain.
        """
        self._check_open()
        try:
            receive(lambda: self._channel.await_bytes(timeout_s))
        except TimeoutError:
            raise self._late(timeout_s, doing) from None
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise self._died(doing) from None

    def poll(self) -> bool:
        """Return at once whether a reply is there (or the child is dead)."""
        self._check_open()
        return self._channel.poll()

    def died(self) -> bool:
        """Return at once whether the process has ended, by itself or by `end`."""
        return self._ended or self._channel.await_death(0.0)

    def _not_taken(self, timeout_s: float) -> WorkerTimeoutError:
        return WorkerTimeoutError(
            f"{self.name}: process {self.pid} did not take a request within {timeout_s:g} s"
        )

    def _late(self, timeout_s: float, doing: str) -> WorkerTimeoutError:
        return WorkerTimeoutError(
            f"{self.name}: process {self.pid} did not answer within {timeout_s:g} s {doing}"
            f"{self.fork_text()}"
        )

    def _died(self, doing: str) -> WorkerDiedError:
        return WorkerDiedError(f"{self.name}: process {self.pid} {self.exit_text()} {doing}")

    def fork_text(self) -> str:
        """Return what may hang a child that is a fork, for messages; nothing for others."""
        if not self._threads:
            return ""
        return (
            f"; it was forked beside {self._threads} other threads, which a fork lacks: it hangs at a lock "
            'that one of them held, or in a library that waits for them; rerun with start_method="forkserver"'
        )

    # ------------------------------------------------------------------ ending

    @property
    def ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return not self._ended and self._process.is_alive()

    @property
    def sentinel(self) -> int:
        """Descriptor or handle that becomes ready when the process ends."""
        return self._pidfd if self._pidfd >= 0 else int(self._process.sentinel)

    def exit_text(self) -> str:
        """Return how the process ended, in words."""
        code = self._await_exit(0.5)
        if code is None:
            return "stopped answering"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def kill(self) -> None:
        """Kill the process and its group at once, then clean up."""
        self.end(grace_s=0.0)

    def end(self, grace_s: float = 2.0) -> None:
        """Wait `grace_s` for the process to leave by itself, then kill it and its group."""
        if self._ended:
            return
        self._ended = True
        _living.discard(self)
        if os.getpid() != self._owner:  # a forked copy: the process is not ours to end
            return
        try:
            if grace_s > 0:
                # Closing the pipe would also ask it to leave, but it may be writing to us still.
                self._await_exit(grace_s)
        finally:  # a second Ctrl-C cuts the grace short
            below = self._below()
            self._kill_group()
            kill_all(below)
            self._clean_up()
            if hasattr(os, "killpg"):
                collect(self.pid, below)

    def _below(self) -> list[ProcessEntry]:
        """Return what the process has started, also in sessions and groups of their own."""
        with contextlib.suppress(
            OSError
        ):  # too many open files, perhaps: the group is killed all the same
            if not self._channel.await_death(0.0):
                return descendants(self.pid)
            # One that left has ended them itself; those of one that crashed are others' children by now.
            if self._await_exit(0.5) != 0:
                return marked(self._mark)
        return []

    def _await_exit(self, timeout_s: float) -> int | None:
        """Wait for the end of the process and return its exit code, None if it runs on.

        Process.join alone would also wait for a grandchild that holds what it watches.
        """
        if self._channel.await_death(timeout_s) and self._process.exitcode is None:
            self._process.join(timeout_s)  # the word of the fork server is on its way
        code: int | None = self._process.exitcode
        return code

    def _clean_up(self) -> None:
        try:
            self._await_exit(5.0)
        finally:
            self.connection.close()
            if self._pidfd >= 0:
                os.close(self._pidfd)
                self._pidfd = -1
            with contextlib.suppress(ValueError):  # still running: unkillable, in the kernel
                self._process.close()

    def _kill_group(self) -> None:
        if not hasattr(os, "killpg"):
            self._process.kill()
            return
        # The child leads a group of its own; until it has got so far only the child itself exists.
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if kill is os.killpg or self._process.exitcode is None:
                    kill(self.pid, signal.SIGKILL)

    def _check_open(self) -> None:
        if self._ended:
            raise ClosedError(f"{self.name}: used after it was closed")

    def __del__(self) -> None:
        if not getattr(self, "_ended", True) and getattr(self, "_process", None) is not None:
            with contextlib.suppress(Exception):
                self.kill()


def _other_threads() -> int:
    """Return how many threads this process has besides this one, those of native libraries included."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task")) - 1
    return threading.active_count() - 1


def _open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when the process ends, or -1."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return -1


def _end_all() -> None:
    for child in list(_living):
        child.kill()


def _forget_in_child() -> None:
    """Close the parent's ends of our siblings' pipes, which a fork copied."""
    for child in list(_living):
        child._ended = True
        with contextlib.suppress(OSError):
            child.connection.close()
    _living.clear()


# After multiprocessing's own exit function, so before it: that one would wait for our children.
atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
