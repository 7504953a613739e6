"""A lock that admits one process at a time to a run folder.

    run       hold_lock: exclusive flock on the file, then its process id into it, for people to read
    others    lock_is_held: try a shared flock without write access, and release it at once

The operating system releases the lock when its process ends, however it ends. A forked child would inherit
it, and workers outlive a killed parent for a moment, so children close it at once.

Not filelock: its only way to query a lock is to take it exclusively, with write access.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from parllel.errors import WrongStateError

try:
    import fcntl
except ImportError:  # no such locks on this system: a second process is not kept out
    fcntl = None  # type: ignore[assignment]

# Retried, because `lock_is_held` in another process holds the lock for a moment.
_TRIES, _PAUSE_S = 5, 0.02
_held: set[int] = set()


def _close_in_child() -> None:
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def hold_lock(path: Path, what: str = "run") -> Iterator[None]:
    """Hold the lock of a file, which is created if needed and then contains the process id.

    what: noun for what the file's folder belongs to, for the error.

    Raises:
        WrongStateError: if another process holds the lock. The message names the file's folder and
            the process.
        OSError: if the file cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _held.add(handle)
    try:
        if not _take(handle, tries=_TRIES):
            holder = os.read(handle, 20).decode(errors="replace").strip() or "unknown"
            raise WrongStateError(
                f"{path.parent}: another process ({holder}) is using this {what}; wait until it has ended"
            )
        # The process id is only informative; a full disk is reported by other files of the run.
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        # In a child forked within the `with` the descriptor is closed already, and its number may be in use
        # for another file.
        if handle in _held:
            _held.remove(handle)
            os.close(handle)


def lock_is_held(path: Path) -> bool:
    """Return whether a process holds the lock of a file, which may be missing."""
    try:
        # Read-only, so that runs of other users can be queried.
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        # Shared: processes that query at the same time must not count as holders.
        return not _take(handle, shared=True)
    finally:
        os.close(handle)


def _take(handle: int, *, shared: bool = False, tries: int = 1) -> bool:
    if fcntl is None:
        return True
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    for i in range(tries):
        if i:
            time.sleep(_PAUSE_S)
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError:  # a file system without locks should not prevent training
            pass
        return True
    return False
