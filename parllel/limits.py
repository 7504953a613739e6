"""What the limits of this process are and how much of them is used, for the messages of errors.

The kernel's own words ("Too many open files") say neither.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_MOST_PROBED = 1 << 16
_OF_LIMITS = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


def limits_text() -> str:
    """Return in words what of each limit that can stand in the way is used, and how to raise it."""
    if sys.platform == "win32":
        return "perhaps a limit of the system was reached"
    import resource

    told = []
    for name, flag, used in (
        ("RLIMIT_NOFILE", "open files: {} of {} (ulimit -n)", _open_files),
        (
            "RLIMIT_NPROC",
            "processes and threads of this user: {} of {} (ulimit -u)",
            _threads_of_user,
        ),
        ("RLIMIT_AS", "address space in bytes: {} of {} (ulimit -v)", _address_space),
    ):
        limit = resource.getrlimit(getattr(resource, name))[0]
        if limit != resource.RLIM_INFINITY:
            told.append(flag.format(_count(used()), f"{limit:,}"))
    said = "; ".join(told) if told else "no limit of open files, processes or memory is set"
    return f"limits of process {os.getpid()}: {said}"


@contextlib.contextmanager
def limits_explained(doing: str) -> Iterator[None]:
    """Let errors of a limit say what was needed and what the limits are, in an error of the same kind.

    doing: what could not be done, with its size or number.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_LIMITS:
            raise
        raise OSError(error.errno, f"{doing}: {error.strerror}; {limits_text()}") from error


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _open_files() -> int | None:
    with contextlib.suppress(OSError):
        return len(os.listdir("/dev/fd")) - 1  # that of the listing itself
    return _probed_files()


def _probed_files() -> int:
    """Count without opening one, for there may be none left."""
    count = 0
    for number in range(_MOST_PROBED):
        with contextlib.suppress(OSError):
            os.fstat(number)
            count += 1
    return count


def _address_space() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int((_PROC / "self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return None


def _threads_of_user() -> int | None:
    """Return how many threads the processes of this user have, which is what the limit counts."""
    count, mine = 0, str(os.getuid())
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            lines = (folder / "status").read_text(errors="replace").splitlines()
            fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            if fields["Uid"].split()[0] == mine:
                count += int(fields["Threads"])
    return count or None
