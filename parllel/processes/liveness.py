"""Children end when their parent does, however it ends.

    parent   holds the write end of one pipe and never writes
    child    holds the read end; when the parent is gone, the pipe hangs up

On Linux the kernel itself then kills the child's whole process group, so this works while the child hangs in
compiled code that holds the interpreter lock, and takes grandchildren along. (The parent-death signal
would fire when the *thread* that forked ends, and would watch the wrong process under forkserver.)
Elsewhere a thread of the child waits for the hang-up.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait

from parllel.limits import limits_text

_pipe: tuple[int, int] | None = None
_lock = threading.Lock()


def liveness_connection() -> Connection | None:
    """Return a read end to hand to a child; None on Windows, where a process handle serves."""
    if sys.platform == "win32":
        return None
    global _pipe
    with _lock:
        if _pipe is None:
            _pipe = os.pipe()
        return Connection(os.dup(_pipe[0]), writable=False)


def _forget_in_child() -> None:
    """Close the parent's ends, which a fork copied: they would keep our siblings alive."""
    global _pipe
    if _pipe is not None:
        for fd in _pipe:
            with contextlib.suppress(OSError):
                os.close(fd)
        _pipe = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def end_with_parent(liveness: Connection | None) -> None:
    """Arrange in a child, once, that it ends when the parent does."""
    by_kernel = False
    if liveness is not None and sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            _kill_group_on_hangup(liveness.fileno())
            by_kernel = True
    watch = threading.Thread(target=_exit_on_hangup, args=(liveness,), daemon=True)
    watch.name = "parllel-liveness"
    try:
        watch.start()
    except RuntimeError as error:  # a limit of threads; the kernel needs none
        if not by_kernel:
            raise RuntimeError(f"{error}; {limits_text()}") from error


def _kill_group_on_hangup(fd: int) -> None:
    import fcntl

    # The owner of a signal belongs to an open file description, which all children share: take a
    # description of our own. It stays open for the life of the process.
    own = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_inheritable(own, False)
    fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    poller = select.poll()
    poller.register(own, select.POLLIN)
    if poller.poll(0):  # the parent was gone before we were ready
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _exit_on_hangup(liveness: Connection | None) -> None:
    if liveness is not None:
        wait([liveness])
    else:
        parent = parent_process()
        if parent is None:
            return
        wait([parent.sentinel])
    os._exit(1)
