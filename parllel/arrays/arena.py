"""Storages: where the bytes of arrays live.

    local     process memory, visible to this process only
    shared    anonymous shared memory, handed to a process when it starts
    managed   anonymous shared memory that can also be sent to a running process

Shared memory has no name that could leak: on Linux it is a memfd, on other POSIX systems an unlinked
temporary file, and it is freed when the last process has unmapped it. One arena serves a whole tree of
arrays, so a tree costs one descriptor however many leaves it has.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import context, reduction
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from parllel.errors import InsufficientMemoryError, RegistrationError
from parllel.system.limits import CGROUPS, OWN_CGROUP, cgroup_folders, limits_text

Storage: TypeAlias = Literal["local", "shared", "managed"]
STORAGES: tuple[Storage, ...] = ("local", "shared", "managed")
ALIGNMENT = 64  # bytes: a cache line, so that neighbouring arrays never share one


class Arena:
    """A block of zeroed bytes that arrays are allocated from.

    Args:
        nbytes: total size in bytes. A piece of n bytes takes up `aligned(n)` bytes.
        storage: "local", "shared" or "managed".

    Raises:
        ValueError: for an unknown storage, or if `nbytes` is less than one.
        InsufficientMemoryError: if the machine has less than `nbytes`; nothing stays allocated.
    """

    def __init__(self, nbytes: int, storage: Storage) -> None:
        if storage not in STORAGES:
            raise ValueError(f"storage: expected one of {STORAGES}, got {storage!r}")
        if nbytes < 1:
            raise ValueError(f"nbytes: expected at least 1, got {nbytes}")
        self.nbytes = nbytes
        self.storage = storage
        self.fd = -1
        self.tag = ""
        self.origin = 0
        self._taken = 0
        _check_available(nbytes)
        try:
            if storage == "local":
                self.buffer: Any
                self.buffer, self.origin = _local_bytes(nbytes)
            else:
                self._allocate_shared()
        except (MemoryError, OSError, OverflowError) as error:
            self.close()
            raise _insufficient(nbytes, f"{error}; {limits_text()}") from error

    def _allocate_shared(self) -> None:
        if sys.platform == "win32":
            # Windows shares mappings by name only. The name is freed with the last process that has it open.
            self.tag = f"parllel-{os.getpid()}-{secrets.token_hex(8)}"
            self.buffer = mmap.mmap(-1, self.nbytes, tagname=self.tag)
            return
        self.fd = _anonymous_file()
        # Claim every page now, so that a lack of memory is an error here and not a SIGBUS later.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.fd, 0, self.nbytes)
        else:
            os.ftruncate(self.fd, self.nbytes)
        self.buffer = mmap.mmap(self.fd, self.nbytes)

    @classmethod
    def attach(cls, nbytes: int, storage: Storage, fd: int, tag: str = "") -> Arena:
        """Map an arena that was created in another process. Takes ownership of `fd`."""
        arena = cls.__new__(cls)
        arena.nbytes, arena.storage, arena.fd, arena.tag = nbytes, storage, fd, tag
        # Only the process that made the arena knows which pieces are taken, so it is full here.
        arena.origin, arena._taken = 0, nbytes
        if sys.platform == "win32":
            arena.buffer = mmap.mmap(-1, nbytes, tagname=tag)
        else:
            arena.buffer = mmap.mmap(fd, nbytes)
        return arena

    def take(self, nbytes: int) -> int:
        """Reserve the next piece and return its offset in bytes."""
        offset = self._taken
        if offset + nbytes > self.nbytes:
            raise ValueError(
                f"arena: {nbytes} bytes requested, but only {self.nbytes - offset} of "
                f"{self.nbytes} are left"
            )
        self._taken = min(offset + aligned(nbytes), self.nbytes)
        return offset

    def close(self) -> None:
        """Close the descriptor. The memory is freed with the last array that uses it."""
        fd, self.fd = getattr(self, "fd", -1), -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)
        # Dropped, not closed: arrays may still use the mapping, which is freed with the last of them.
        self.buffer = None

    def __del__(self) -> None:
        # os may be gone at interpreter exit
        if getattr(self, "fd", -1) >= 0 and os is not None:
            with contextlib.suppress(OSError):
                os.close(self.fd)

    def __reduce__(self) -> tuple[Callable[..., Arena], tuple[Any, ...]]:
        if self.storage == "local":
            return _rebuild_local, (bytes(memoryview(self.buffer)[self.origin :][: self.nbytes]),)
        if self.storage == "shared" and context.get_spawning_popen() is None:
            raise RegistrationError(
                "shared memory can be passed to a process only when the process starts; allocate "
                'it with storage="managed" to send it to a running process'
            )
        if sys.platform == "win32":
            return _rebuild_tagged, (self.nbytes, self.storage, self.tag)
        # Send the descriptor itself: the memory has no name by which another process could open it.
        return _rebuild_shared, (self.nbytes, self.storage, reduction.DupFd(self.fd))


def aligned(nbytes: int) -> int:
    """Round `nbytes` up to a multiple of the cache line, the unit of arena pieces."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def available_memory() -> int | None:
    """Return how many bytes can still be allocated, or None if the system does not report it.

    This is the minimum of MemAvailable in /proc/meminfo and the headroom of the memory cgroups.
    """
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    found += cgroup_headroom()
    return min(found) if found else None


def cgroup_headroom(root: Path = CGROUPS, process: Path = OWN_CGROUP) -> list[int]:
    """Return the remaining bytes of each memory cgroup above this process.

    Supports cgroup v2 (`memory.max`) and v1 (`memory.limit_in_bytes`).
    """
    folders = cgroup_folders("memory", root, process)
    return [left for folder in folders for left in _left_in(folder)]


def _left_in(folder: Path) -> list[int]:
    for limit, usage, prefix in (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        with contextlib.suppress(OSError, ValueError):  # "max" means no limit
            left = int((folder / limit).read_text()) - int((folder / usage).read_text())
            return [max(0, left + _cached_files(folder, prefix))]
    return []


def _cached_files(folder: Path, prefix: str) -> int:
    """Return the size of the page cache: counted as usage, but reclaimed before an allocation fails."""
    wanted = (f"{prefix}inactive_file", f"{prefix}active_file")
    cached = 0
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text().splitlines():
            name, amount = line.split()
            if name in wanted:
                cached += int(amount)
    return cached


def _check_available(nbytes: int) -> None:
    # Small requests are not worth three file reads.
    if nbytes < 1 << 20:
        return
    available = available_memory()
    if available is not None and nbytes > available:
        raise _insufficient(nbytes, "not enough memory")


def _insufficient(nbytes: int, why: str) -> InsufficientMemoryError:
    available = available_memory()
    there = "an unknown amount" if available is None else f"{available:,} bytes"
    return InsufficientMemoryError(
        f"could not allocate {nbytes:,} bytes with {there} available: {why}"
    )


def _local_bytes(nbytes: int) -> tuple[bytearray, int]:
    """Return zeroed, touched bytes and the offset of their first cache line."""
    # A bytearray, because numpy collapses `.base` chains past arrays and memoryviews; Block needs
    # the chain to know whether a view that it handed out is still in use.
    room = bytearray(nbytes + ALIGNMENT)
    view = np.frombuffer(room, np.uint8)
    view.fill(0)
    return room, -view.ctypes.data % ALIGNMENT


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("parllel", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(prefix="parllel-")
    os.unlink(path)
    return fd


def _rebuild_local(content: bytes) -> Arena:
    arena = Arena(len(content), "local")
    memoryview(arena.buffer)[arena.origin :][: len(content)] = content
    # Full: its pieces were allocated by the arena that this is a copy of.
    arena._taken = arena.nbytes
    return arena


def _rebuild_shared(nbytes: int, storage: Storage, duplicate: Any) -> Arena:
    return Arena.attach(nbytes, storage, duplicate.detach())


def _rebuild_tagged(nbytes: int, storage: Storage, tag: str) -> Arena:
    return Arena.attach(nbytes, storage, -1, tag)
