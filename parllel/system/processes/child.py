"""Child process that runs a Python function, connected by a pipe.

    parent                                        child
    Child(target, args) --- start --------------> run_child
                        --- payload ------------> target(connection, *args)
    send_bytes          ------- requests ------->
    receive             <------ replies ---------  (an exception is a reply of its own kind)
                        ------- liveness pipe hangs up -----> killed with its process group
    (how it is watched and ended: watched_process.py)

The parent closes its copy of the child's end of the pipe and also waits on the child's process descriptor, so
it notices a death immediately even while a grandchild still holds the pipe.
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

# The parent's ends of all pipes. A fork closes its copies, which would keep a sibling's pipe open after the
# parent's end.
_our_ends: weakref.WeakSet[Connection] = weakref.WeakSet()


class Child(WatchedProcess):
    """One child process that runs `target(connection, *args)`.

    Args:
        target, args: pickled by cloudpickle, so lambdas and classes of a notebook work.
        inherited: objects that multiprocessing can pass only when a process starts (arrays in shared
            memory); if given, the target receives them as the keyword argument `inherited`.
        name: name of the child, for messages.
        start_method: "fork", "forkserver" or "spawn"; default forkserver where it exists.
        start_timeout_s: time limit for the fork server to start the child, once it has started another; and
            for the child to read its target.
        environment: all environment variables of the child, if started by the fork server; default those of
            this process.
        confinement: isolates the child from outside processes and files, Linux only.

    Raises:
        ValueError: for a start method that the platform does not have.
        OSError: if a limit of open files, processes or memory is reached; names the limit.
        WorkerTimeoutError, WorkerDiedError: if the fork server does not answer in time, or has ended.

    `end()` is idempotent, runs at interpreter exit, and leaves no process of the child's group.
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
        # Counted for the message of a time-out: a lock held by another thread stays locked in a fork.
        self._threads = _other_threads() if self.start_method == "fork" else 0
        # With cloudpickle, as multiprocessing cannot pickle lambdas or classes of a notebook.
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
        # ends_descendants: `run_child` ends what the target has started before it exits with code 0.
        super().__init__(process, name=name, mark=mark, ends_descendants=True)
        # Watches the process besides the pipe, which a grandchild may hold open after the child's death.
        self._channel = PipeEnd(self.connection, self.sentinel)
        self._hand_over(payload, start_timeout_s)

    def _hand_over(self, payload: bytes, timeout_s: float) -> None:
        """Send the target over our pipe, as multiprocessing would wait for its own without a time limit."""
        try:
            self._channel.write(payload, timeout_s)
        except TimeoutError:
            self.kill()
            raise WorkerTimeoutError(
                f"{self.name}: process {self.pid} did not accept its target within {timeout_s:g} s"
            ) from None
        except (BrokenPipeError, ConnectionResetError):
            return  # it has ended; the first request reports that
        except BaseException:
            self.kill()
            raise

    # ------------------------------------------------------------------ talking

    def send_bytes(self, message: bytes, timeout_s: float = 60.0) -> None:
        """Send a request.

        Raises:
            ClosedError: after `end()`.
            WorkerTimeoutError: if the child did not accept it within `timeout_s`.
            WorkerDiedError: if the child has ended. A reply that it sent before can still be received.
        """
        self.check_open()
        try:
            self._channel.write(message, timeout_s)
        except TimeoutError:
            # Part of it may be in the pipe, so the caller must not send again;
            # Conversation ends the child.
            raise self._not_taken(timeout_s) from None
        except (BrokenPipeError, ConnectionResetError):
            raise self.death_error("before it took the next request") from None

    def send_handles(self, sends: Sequence[Callable[[], None]], timeout_s: float) -> None:
        """Call functions that send descriptors over `connection`, each once there is room for it.

        Raises: as `send_bytes`.
        """
        self.check_open()
        try:
            # Room is awaited for each, as `send_handle` blocks in the kernel while the pipe is full.
            for send in sends:
                self._channel.await_room(timeout_s)
                send()
        except TimeoutError:
            raise self._not_taken(timeout_s) from None
        except (BrokenPipeError, ConnectionResetError):
            raise self.death_error("before it took the next request") from None

    def receive(self, timeout_s: float, doing: str) -> bytes:
        """Return the next reply.

        doing: the child's current task, for messages.

        Raises:
            WorkerTimeoutError: if nothing arrived within `timeout_s`.
            WorkerDiedError: if the child died without a reply.
            Exception: the child's exception, with its original type.
        """
        self.check_open()
        try:
            message = self._channel.read(timeout_s)
        except TimeoutError:
            # What has arrived stays in the channel, and the next read continues there.
            raise self.late_error(timeout_s, doing) from None
        # Raised only once the pipe is empty, after all messages sent before the death.
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise self.death_error(doing) from None
        # It may belong to an earlier request or to none: a child may fail at any time, and the next read
        # reports it.
        if message[:1] == EXCEPTION:
            raise_packed(message[1:], f"{self.name}, process {self.pid}, {doing}")
        return message

    def receive_handles(
        self, receive: Callable[[Callable[[], None]], None], timeout_s: float, doing: str
    ) -> None:
        """Call a function that reads descriptors from `connection`, calling its argument before each.

        Raises: as `receive`, if a descriptor does not arrive in time or the child died.
        """
        self.check_open()
        try:
            # `recv_handle` itself has no time-out, and does not notice a death.
            receive(lambda: self._channel.await_bytes(timeout_s))
        except TimeoutError:
            raise self.late_error(timeout_s, doing) from None
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise self.death_error(doing) from None

    def poll(self) -> bool:
        """Return without waiting whether there is a reply or the child has died."""
        self.check_open()
        return self._channel.poll()

    def handles(self) -> Sequence[Connection | int]:
        """Return handles that become ready when `poll` becomes True; empty if bytes were read ahead."""
        return self._channel.handles()

    def _not_taken(self, timeout_s: float) -> WorkerTimeoutError:
        return WorkerTimeoutError(
            f"{self.name}: process {self.pid} did not accept a request within {timeout_s:g} s"
        )

    def late_error(self, timeout_s: float, doing: str) -> WorkerTimeoutError:
        """Build the error for a reply that timed out."""
        return WorkerTimeoutError(
            f"{self.name}: process {self.pid} did not answer within {timeout_s:g} s {doing}"
            f"{self._fork_text()}"
        )

    def death_error(self, doing: str) -> WorkerDiedError:
        """Build the error for a process that has ended or closed its end of the pipe."""
        return WorkerDiedError(f"{self.name}: process {self.pid} {self.exit_text()} {doing}")

    def _fork_text(self) -> str:
        """Explain why a forked child may hang; empty for other start methods."""
        if not self._threads:
            return ""
        return (
            f"; it was forked while {self._threads} other threads ran, which a fork lacks: it may hang at a "
            "lock that one of them held, or in a library that waits for them; rerun with "
            'start_method="forkserver"'
        )

    # ------------------------------------------------------------------ ending

    def end(self, grace_s: float = 2.0) -> None:
        """End the process as `WatchedProcess.end` does, and close the pipe."""
        try:
            # The pipe stays open until then, as closing it would break a child that is still writing its
            # answer.
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
    # Duplex, which on POSIX is a socket pair: only sockets can pass descriptors.
    mine, theirs = multiprocessing.Pipe(duplex=True)
    # Registered before the start: a fork copies our end of the pipe, and the child closes it.
    _our_ends.add(mine)
    liveness = None
    try:
        liveness = liveness_connection()
        # The fork server has the variables of the time at which it was started, so the child gets the current
        # ones.
        environ = None
        if method == "forkserver":
            environ = unchanged_environment(timeout_s) if environment is None else dict(environment)
        # `theirs` and `liveness` are copied into the child by the start, so this process may close
        # its copies below, whether it succeeds or fails.
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
        # With a copy of the child's end here, the pipe would not hang up when the child ends.
        theirs.close()
        if liveness is not None:
            liveness.close()
    return process, mine


def _other_threads() -> int:
    """Return the number of other threads of this process, including those of native libraries."""
    # From the system if possible, as Python does not know threads that native libraries start.
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task")) - 1
    return threading.active_count() - 1


def _forget_in_child() -> None:
    """Close a fork's copies of the parent's ends of other children's pipes."""
    for connection in list(_our_ends):
        with contextlib.suppress(OSError):
            connection.close()
    _our_ends.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
