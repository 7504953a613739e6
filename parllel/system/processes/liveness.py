"""End of children when their parent ends, however it ends.

    parent   holds the write end of one pipe and never writes to it
    child    holds a read end; when the parent ends, the kernel closes the pipe and the read end hangs up

On Linux the kernel responds to the hang-up by killing the child's whole process group. This works even while
the child hangs in compiled code that holds the GIL, and includes the programs that it has started. (The
parent-death signal would fire when the *thread* that forked ends, and would watch the fork server instead of
the parent.) Elsewhere a thread of the child waits for the hang-up.
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

from parllel.system.limits import limits_text

_pipe: tuple[int, int] | None = None  # one for all children
_lock = threading.Lock()  # for the first start of children in several threads


def liveness_connection() -> Connection | None:
    """Return a read end to pass to a child; None on Windows, where children wait for a process handle."""
    if sys.platform == "win32":
        return None
    global _pipe
    with _lock:
        if _pipe is None:
            _pipe = os.pipe()
        return Connection(os.dup(_pipe[0]), writable=False)


def _forget_in_child() -> None:
    """Close a fork's copies of both ends: an open write end would hide the end of the parent."""
    global _lock, _pipe
    _lock = threading.Lock()  # a thread that the fork lacks may hold the parent's
    if _pipe is not None:
        for fd in _pipe:
            with contextlib.suppress(OSError):
                os.close(fd)
        _pipe = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def kernel_guard(liveness: Connection | None) -> int | None:
    """Make the kernel kill this child with its parent; return a descriptor to keep open, or None."""
    if liveness is not None and sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            return kill_group_with_parent(liveness.fileno())
    return None


def watch_parent(liveness: Connection | None, *, by_kernel: bool) -> None:
    """Start a thread that ends this child with its parent.

    by_kernel: whether the kernel also does so.
    """
    # On Linux too, as the kernel's signal misses a child that has moved to another process group.
    watch = threading.Thread(target=_exit_on_hangup, args=(liveness,), daemon=True)
    watch.name = "parllel-liveness"
    try:
        watch.start()
    except RuntimeError as error:  # a limit on threads was reached
        if not by_kernel:  # otherwise the kernel's signal suffices
            raise RuntimeError(f"{error}; {limits_text()}") from error


def kill_group_with_parent(fd: int) -> int:
    """Make the kernel kill the process group of this process when the parent ends (Linux).

    fd: the read end of the liveness pipe; may be closed afterwards.

    Returns:
        A descriptor that must stay open. `exec` closes it unless it is made inheritable.
    """
    import fcntl

    # The receiver of the signal is a property of the open file description, which all children share through
    # their descriptors. Opening the pipe through /proc makes a new description for this child. It is never
    # closed, so the signal can come as long as the process lives.
    own = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_inheritable(own, False)
    # SIGKILL instead of the default SIGIO, which a library may handle or block; to the group (negative id);
    # O_ASYNC last, as it enables the signal.
    fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    poller = select.poll()
    poller.register(own, select.POLLIN)
    # The parent may have ended before O_ASYNC was set; that hang-up sent no signal.
    if poller.poll(0):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    return own


def _exit_on_hangup(liveness: Connection | None) -> None:
    if liveness is not None:
        wait([liveness])
    else:
        parent = parent_process()
        if parent is None:
            return
        wait([parent.sentinel])
    # `sys.exit` would end only this thread.
    os._exit(1)
