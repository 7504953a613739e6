"""One process at a time in the folder of a run.

The lock is the system's: it is gone when its holder is, however that ended. A forked child holds what its
parent holds, and workers outlive a killed parent for a moment, so children let go at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from parllel.errors import WrongStateError

_held: set[int] = set()


def _let_go_in_child() -> None:
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go_in_child)


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
        if not _take(handle):
            holder = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
            raise WrongStateError(
                f"{path.parent}: another process ({holder}) is using this run; wait until it has ended"
            )
        with contextlib.suppress(
            OSError
        ):  # the number is for people; a full disk is told elsewhere
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        if handle in _held:
            _held.remove(handle)
            os.close(handle)


def lock_is_held(path: Path) -> bool:
    """Return whether anyone holds the lock of a file, which may be missing."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _take(handle)
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks; training is more important
        return True
    return True
