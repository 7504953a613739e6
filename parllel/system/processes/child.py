"""A child process that runs a function of ours, spoken to over a pipe.

    parent                                        child
    Child(target, args) --- start --------------> run_child
                        --- payload ------------> target(connection, *args)
    send_bytes          ------- requests ------->
    receive             <------ replies ---------  (an exception is a reply of its own kind)
                        ------- liveness pipe hangs up -----> killed with its process group
    (how it is watched and ended: watched_process.py)

The parent closes its copy of the child's end of the pipe and waits on the child's process descriptor as
well, so it notices a death at once even while a grandchild still holds the pipe.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from parllel.errors import WorkerDiedError, WorkerError, WorkerTimeoutError
from parllel.system.limits import limits_explained
from parllel.system.processes.confinement import Confinement
from parllel.system.processes.exceptions import raise_packed
from parllel.system.processes.fork_server import START_S
from parllel.system.processes.in_child import EXCEPTION, run_child
from parllel.system.processes.launch import (
    StartMethod,
    check_start_method,
    start_lean,
    unchanged_environment,
)
from parllel.system.processes.liveness import liveness_connection
from parllel.system.processes.pipe_end import PipeEnd
from parllel.system.processes.watched_process import StartedProcess, WatchedProcess

# The parent's ends of all pipes, for a fork to close: with a copy of them a child would keep a sibling's pipe
# open, which then would not hang up with the parent.
_our_ends: weakref.WeakSet[Connection] = weakref.WeakSet()


class Child(WatchedProcess):
    """One child process that runs `target(connection, *args)`.

    Args:
        target, args: travel by cloudpickle, so lambdas and classes of a notebook work.
        inherited: objects handed over as multiprocessing does at the start of a process (arrays in
            shared memory); the target gets them as a keyword argument of that name if given.
        name: what error messages call the child.
        start_method: "fork", "forkserver" or "spawn"; default forkserver where it exists.
        start_timeout_s: how long the fork server may take to start it, once it has started another; and how
            long it may take to read what it is to run.
        environment: all the variables that the child is to have, where it has a fork server; default those
            of this process.
        confinement: keeps the child from processes and files outside, Linux only.

    Raises:
        ValueError: for a start method that the platform does not have.
        OSError: if a limit of open files, processes or memory is reached; says which.
        WorkerTimeoutError, WorkerDiedError: if the fork server does not answer in time, or ended.

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
        start_timeout_s: float = START_S,
        environment: Mapping[str, str] | None = None,
        confinement: Confinement | None = None,
    ) -> None:
        self.start_method = check_start_method(start_method)
        # Counted now, for the message of a time-out: a lock that one of them holds stays locked in a fork.
        self._threads = _other_threads() if self.start_method == "fork" else 0
        # By cloudpickle, as multiprocessing's own pickling takes no lambdas nor classes of a notebook.
        payload, mark = cloudpickle.dumps((target, args)), secrets.token_hex(16)
        try:
            with limits_explained(f"{name}: could not start its process, which takes 4 open files"):
                process, self.connection = _start(
                    self.start_method,
                    mark,
                    inherited,
                    start_timeout_s,
                    environment,
                    confinement,
                )
        except WorkerError as error:  # of the fork server
            raise type(error)(f"{name}: could not start its process: {error}") from None
        # `run_child` ends what the target has started before it leaves with code 0.
        super().__init__(process, name=name, mark=mark, ends_descendants=True)
        # With the process as well as the pipe, which a grandchild may hold open after the child's death.
        self._channel = PipeEnd(self.connection, self.sentinel)
        self._hand_over(payload, start_timeout_s)

    def _hand_over(self, payload: bytes, timeout_s: float) -> None:
        """Send what to run; by this pipe, as multiprocessing's own would be waited for without a limit."""
        try:
            self._channel.write(payload, timeout_s)
        except TimeoutError:
            self.kill()
            raise WorkerTimeoutError(
                f"{self.name}: process {self.pid} did not take what it is to run within {timeout_s:g} s"
            ) from None
        except (BrokenPipeError, ConnectionResetError):
            return  # it has ended, which the first request reports
        except BaseException:
            self.kill()
            raise

    # ------------------------------------------------------------------ talking

    def send_bytes(self, message: bytes, timeout_s: float = 60.0) -> None:
        """Send a request.

        Raises:
            ClosedError: after `end()`.
            WorkerTimeoutError: if the child did not take it in `timeout_s`.
            WorkerDiedError: if the child is gone. A reply that it left behind can still be received.
        """
        self.check_open()
        try:
            self._channel.write(message, timeout_s)
        except TimeoutError:
            raise self._not_taken(timeout_s) from None
        except (BrokenPipeError, ConnectionResetError):
            raise self.death_error("before it took the next request") from None

    def send_handles(self, sends: Sequence[Callable[[], None]], timeout_s: float) -> None:
        """Call what sends descriptors over `connection`, each once there is room for it.

        Raises: as `send_bytes`.
        """
        self.check_open()
        try:
            # Each of them, as `send_handle` blocks in the system while the pipe is full.
            for send in sends:
                self._channel.await_room(timeout_s)
                send()
        except TimeoutError:
            raise self._not_taken(timeout_s) from None
        except (BrokenPipeError, ConnectionResetError):
            raise self.death_error("before it took the next request") from None

    def receive(self, timeout_s: float, doing: str) -> bytes:
        """Return the next reply.

        doing: what the child was asked to do, for messages.

        Raises:
            WorkerTimeoutError: if nothing came in `timeout_s`.
            WorkerDiedError: if the child died without a reply.
            Exception: what the child raised, as itself.
        """
        self.check_open()
        try:
            message = self._channel.read(timeout_s)
        except TimeoutError:
            raise self.late_error(timeout_s, doing) from None
        # Only once the pipe is empty: what the child sent before its death has been returned by then.
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise self.death_error(doing) from None
        # Even of an earlier request, or of none: a child may fail at any time, and the next read reports it.
        if message[:1] == EXCEPTION:
            raise_packed(message[1:], f"{self.name}, process {self.pid}, {doing}")
        return message

    def receive_handles(
        self, receive: Callable[[Callable[[], None]], None], timeout_s: float, doing: str
    ) -> None:
        """Call what reads descriptors from `connection`; it calls what it is given before each of them.

        Raises: as `receive` does, where one would be waited for too long, or in vain.
        """
        self.check_open()
        try:
            # `recv_handle` itself waits without an end, and would not notice a death.
            receive(lambda: self._channel.await_bytes(timeout_s))
        except TimeoutError:
            raise self.late_error(timeout_s, doing) from None
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise self.death_error(doing) from None

    def poll(self) -> bool:
        """Return at once whether a reply is there (or the child is dead)."""
        self.check_open()
        return self._channel.poll()

    def handles(self) -> Sequence[Connection | int]:
        """Return what is ready when `poll` returns True; empty if it does so for another reason."""
        return self._channel.handles()

    def _not_taken(self, timeout_s: float) -> WorkerTimeoutError:
        return WorkerTimeoutError(
            f"{self.name}: process {self.pid} did not take a request within {timeout_s:g} s"
        )

    def late_error(self, timeout_s: float, doing: str) -> WorkerTimeoutError:
        """Return what to raise when no reply came in time."""
        return WorkerTimeoutError(
            f"{self.name}: process {self.pid} did not answer within {timeout_s:g} s {doing}"
            f"{self._fork_text()}"
        )

    def death_error(self, doing: str) -> WorkerDiedError:
        """Return what to raise when the process has ended, or has closed its end of the pipe."""
        return WorkerDiedError(f"{self.name}: process {self.pid} {self.exit_text()} {doing}")

    def _fork_text(self) -> str:
        """Return what may hang a child that is a fork; nothing for others."""
        if not self._threads:
            return ""
        return (
            f"; it was forked beside {self._threads} other threads, which a fork lacks: it hangs at a lock "
            'that one of them held, or in a library that waits for them; rerun with start_method="forkserver"'
        )

    # ------------------------------------------------------------------ ending

    def end(self, grace_s: float = 2.0) -> None:
        """End the process as `WatchedProcess.end` does, and close the pipe."""
        try:
            # The pipe stays open until then: closing it would stop a child that is still writing its answer.
            super().end(grace_s)
        finally:
            self.connection.close()


def _start(
    method: StartMethod,
    mark: str,
    inherited: Any,
    timeout_s: float,
    environment: Mapping[str, str] | None,
    confinement: Confinement | None,
) -> tuple[StartedProcess, Connection]:
    """Start the process; return it and our end of the pipe."""
    # Duplex, which on POSIX systems is a pair of sockets: only these pass descriptors.
    mine, theirs = multiprocessing.Pipe(duplex=True)
    # Registered before the start: a fork copies our end of the pipe, and the child closes it.
    _our_ends.add(mine)
    liveness = None
    try:
        liveness = liveness_connection()
        # The fork server was started earlier: it has the variables of that time, and not the caller's.
        environ = None
        if method == "forkserver":
            environ = unchanged_environment(timeout_s) if environment is None else dict(environment)
        process: StartedProcess = start_lean(
            method,
            run_child,
            (theirs, liveness, environ, mark, inherited, confinement),
            timeout_s,
        )
    except BaseException:
        mine.close()
        raise
    finally:
        # With a copy of the child's end in this process the pipe would not hang up when the child closes its.
        theirs.close()
        if liveness is not None:
            liveness.close()
    return process, mine


def _other_threads() -> int:
    """Return how many threads this process has besides this one, those of native libraries included."""
    # From the system where it can be had: Python does not know the threads that native libraries start.
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task")) - 1
    return threading.active_count() - 1


def _forget_in_child() -> None:
    """Close the parent's ends of our siblings' pipes, which a fork copied."""
    for connection in list(_our_ends):
        with contextlib.suppress(OSError):
            connection.close()
    _our_ends.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
