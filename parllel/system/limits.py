"""Limits of this process and their use, for error messages.

The kernel's own message ("Too many open files") contains neither.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
_PROC = Path("/proc")
_MAX_PROBED = 1 << 16
# Errors by which the system reports that a limit was reached.
_LIMIT_ERRORS = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


def cgroup_folders(controller: str, root: Path = CGROUPS, process: Path = OWN_CGROUP) -> set[Path]:
    """Return the possible folders of this process's control group and its ancestors.

    controller: such as "cpu"; version 1 has one tree each, in `root / controller`, version 2 one for all.
    """
    # In a container the path may be the host's, which does not exist here; the files at the root are then the
    # container's.
    folders = {root, root / controller}
    with contextlib.suppress(OSError, ValueError):
        for line in process.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                folder = (root / controller if controllers else root) / group.lstrip("/")
                # Limits of ancestors apply too.
                folders.update([folder, *folder.parents])
    return folders


def limits_text() -> str:
    """Describe the limits that are set: how much is used, and the command to raise each."""
    if sys.platform == "win32":
        return "perhaps a limit of the system was reached"
    import resource

    lines = []
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
            lines.append(flag.format(_count(used()), f"{limit:,}"))
    listed = "; ".join(lines) if lines else "no limit of open files, processes or memory is set"
    return f"limits of process {os.getpid()}: {listed}"


@contextlib.contextmanager
def limits_explained(doing: str) -> Iterator[None]:
    """Re-raise an OSError about a limit with a description of the limits.

    doing: the operation that failed, with its size or number.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _LIMIT_ERRORS:
            raise
        raise OSError(error.errno, f"{doing}: {error.strerror}; {limits_text()}") from error


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _open_files() -> int | None:
    with contextlib.suppress(OSError):
        return len(os.listdir("/dev/fd")) - 1  # without the listing's own descriptor
        # Listing a folder needs a descriptor, which may be the very one that is missing.
    return _probed_files()


def _probed_files() -> int:
    """Count open files without opening another."""
    count = 0
    for number in range(_MAX_PROBED):
        with contextlib.suppress(OSError):
            os.fstat(number)
            count += 1
    return count


def _address_space() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int((_PROC / "self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return None


def _threads_of_user() -> int | None:
    """Return the number of threads of all processes of this user, which RLIMIT_NPROC limits."""
    count, mine = 0, str(os.getuid())
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            lines = (folder / "status").read_text(errors="replace").splitlines()
            fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            if fields["Uid"].split()[0] == mine:
                count += int(fields["Threads"])
    return count or None
