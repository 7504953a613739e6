"""Errors at a limit name what was needed and what the limit is."""

from __future__ import annotations

import errno
import os
import re
import resource

import pytest
from python_code import run_code
from start_methods import SPAWN_SOAKS

from parllel.system.limits import limits_explained, limits_text


def test_limits_are_told_with_what_is_used() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd")) - 1
    text = limits_text()
    assert text.startswith(
        f"limits of process {os.getpid()}: open files: {used:,} of {soft:,} (ulimit -n)"
    )


def test_other_errors_stay_as_they_are() -> None:
    error = FileNotFoundError(errno.ENOENT, "No such file or directory")
    with (
        pytest.raises(FileNotFoundError, match="No such file") as info,
        limits_explained("reading"),
    ):
        raise error
    assert info.value is error
    with (
        pytest.raises(
            BlockingIOError,
            match=r"cage 3: no process: Resource temporarily unavailable; limits of process \d+: open files",
        ),
        limits_explained("cage 3: no process"),
    ):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


SCRIPT = """
    import errno, os, resource, sys
    from parllel.arrays import SharedMemoryArray
    from parllel.system.processes.child import Child

    def refuse():
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    kind, method, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
    held = []

    def idle(connection):
        connection.recv_bytes()

    try:
        if kind == "processes":
            held.append(Child(idle, start_method=method))
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            while True:
                held.append(Child(idle, start_method=method, name=f"cage {len(held)}"))
        elif kind == "refused":
            os.fork = refuse
            Child(idle, start_method=method, name="cage 3")
        elif kind == "arrays":
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            while True:
                held.append(SharedMemoryArray((100,), "float32"))
        else:
            pages = int(open("/proc/self/statm").read().split()[0])
            limit += pages * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            SharedMemoryArray((100_000_000,), "uint8")
    except (OSError, MemoryError) as error:
        print(error)
    for child in held:
        child.kill() if kind == "processes" else child.close()
"""


def at_limit(*args: str) -> str:
    done = run_code(SCRIPT, *args)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("method", SPAWN_SOAKS)
def test_too_many_processes_for_the_open_files(method: str) -> None:
    pattern = (
        r"\[Errno 24\] cage \d+: could not start its process, which takes 4 open files: "
        r"Too many open files; limits of process \d+: open files: \d+ of 32 \(ulimit -n\)"
    )
    text = at_limit("processes", method, "32")
    assert re.match(pattern, text), text


def test_a_process_that_cannot_be_forked() -> None:
    text = at_limit("refused", "fork", "0")
    assert text.startswith(
        "[Errno 11] cage 3: could not start its process, which takes 4 open files: "
        "Resource temporarily unavailable; limits of process "
    )


def test_too_many_arrays_for_the_open_files() -> None:
    text = at_limit("arrays", "none", "32")
    assert "could not allocate 448 bytes" in text
    assert "Too many open files; limits of process" in text
    assert re.search(r"open files: 3[12] of 32 \(ulimit -n\)", text)


def test_an_array_beyond_the_address_space() -> None:
    text = at_limit("space", "none", "50000000")
    assert "could not allocate 100,000,000 bytes" in text
    assert re.search(r"address space in bytes: [0-9,]+ of [0-9,]+ \(ulimit -v\)", text)
