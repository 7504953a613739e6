"""One process at a time in the folder of a run.

The lock is the system's: it ends with the process that holds it, however that ends. A forked child inherits
it, and workers outlive a killed parent for a moment, so children close it at once.

Not filelock: to ask whether a lock is held is to take it there, exclusively and with the right to write.
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
except ImportError:  # a system without such locks: nothing keeps a second process out there
    fcntl = None  # type: ignore[assignment]

# A process that looks whether the lock is held holds it itself for a moment.
_TRIES, _PAUSE_S = 5, 0.02
_held: set[int] = set()


def _close_in_child() -> None:
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made if it is missing and then holds the process's number.

    Raises:
        WrongStateError: if another holds it; names the file's folder and the process.
        OSError: if the file cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _held.add(handle)
    try:
        if not _take(handle, tries=_TRIES):
            holder = os.read(handle, 20).decode(errors="replace").strip() or "unknown"
            raise WrongStateError(
                f"{path.parent}: another process ({holder}) is using this run; wait until it has ended"
            )
        # The number is only for people to read; other files of the run report a full disk.
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        # In a child that was forked within the `with` it is closed already, and the number may be another
        # file's.
        if handle in _held:
            _held.remove(handle)
            os.close(handle)


def lock_is_held(path: Path) -> bool:
    """Return whether a process holds the lock of a file, which may be missing."""
    try:
        # Not for writing, so that one may look at runs of other users.
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        # Shared: other processes that look at the same moment must not count as holders.
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
        except OSError:  # a file system without locks, which should not keep anyone from training
            pass
        return True
    return False
