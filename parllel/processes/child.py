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
import pickle
import signal
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from parllel.errors import ClosedError, WorkerDiedError, WorkerTimeoutError
from parllel.processes.channel import Channel
from parllel.processes.exceptions import pack_exception, raise_packed
from parllel.processes.launch import ONE_THREAD, check_start_method, start_lean
from parllel.processes.liveness import end_with_parent, liveness_connection

EXCEPTION = b"\xff"  # the first byte of a reply that is a packed exception

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
        payload = cloudpickle.dumps((target, args))
        mine, theirs = multiprocessing.Pipe(duplex=True)
        liveness = liveness_connection()
        environ = dict(os.environ) if self.start_method == "forkserver" else None
        # Registered before the start: a fork copies our end of the pipe, and the child closes it.
        self.connection: Connection = mine
        _living.add(self)
        try:
            self._process = start_lean(
                self.start_method, _run, (theirs, liveness, environ, payload, inherited)
            )
        except BaseException:
            self._ended = True
            mine.close()
            raise
        finally:
            theirs.close()
            if liveness is not None:
                liveness.close()
        self.pid = int(self._process.pid or 0)
        self._pidfd = _open_pidfd(self.pid)
        death = self._pidfd if self._pidfd >= 0 else int(self._process.sentinel)
        self._channel = Channel(mine, death)

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
            raise WorkerTimeoutError(
                f"{self.name}: process {self.pid} did not take a request within {timeout_s:g} s"
            ) from None
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

    def _late(self, timeout_s: float, doing: str) -> WorkerTimeoutError:
        return WorkerTimeoutError(
            f"{self.name}: process {self.pid} did not answer within {timeout_s:g} s {doing}"
        )

    def _died(self, doing: str) -> WorkerDiedError:
        return WorkerDiedError(f"{self.name}: process {self.pid} {self.exit_text()} {doing}")

    # ------------------------------------------------------------------ ending

    @property
    def ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return not self._ended and self._process.is_alive()

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
            self._kill_group()
            self._clean_up()

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


def _run(
    connection: Connection,
    liveness: Connection | None,
    environ: dict[str, str] | None,
    payload: bytes,
    inherited: Any,
) -> None:
    """Be the child: run the target, report what it raises."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # Ctrl-C goes to the parent, which ends us; kills reach grandchildren
    end_with_parent(liveness)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if environ is not None:
        os.environ.update(environ)
    os.environ.update(ONE_THREAD)
    try:
        target, args = pickle.loads(payload)
        more = {} if inherited is None else {"inherited": inherited}
        target(connection, *args, **more)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the parent no longer listens
            connection.send_bytes(EXCEPTION + pack_exception(error))
        if not isinstance(error, Exception):
            raise  # SystemExit keeps its exit code
    finally:
        connection.close()
