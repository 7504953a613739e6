from __future__ import annotations

import multiprocessing as mp
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_sharer, resource_tracker, shared_memory
from pathlib import Path
from typing import Any, TypeVar

import pytest

from parllel.system.processes import process_table
from parllel.system.processes.child import Child
from parllel.system.processes.fork_server import forkserver_pid
from parllel.system.processes.process_table import (
    command_of,
    descendants,
    process_entry,
    process_runs,
)
from parllel.testing import LeakError, LeakGuard
from parllel.testing.subreaper import set_adopting

T = TypeVar("T")

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
# Starts a sleeper, says its pid, and waits to be told to leave.
WITH_GRANDCHILD = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "print(child.pid, flush=True)\n"
    "sys.stdin.read()\n"
)


def start_with_grandchild() -> tuple[subprocess.Popen[bytes], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_GRANDCHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def start_sleeper() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(SLEEP)
    while "sleep" not in command_of(process.pid):  # the kernel is not done with its start
        time.sleep(0.001)
    return process


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()


def test_nothing_left_is_no_error() -> None:
    with LeakGuard(grace_s=0.0):
        subprocess.run([sys.executable, "-c", ""], check=True)
        with open(os.devnull) as file:
            file.read()
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()


def report_of(leave: Callable[[], T]) -> tuple[str, T]:
    """Return what the guard says to what a function leaves, and the function's result."""
    kept = []
    guard = LeakGuard(grace_s=0.05)
    with pytest.raises(LeakError, match=r"^left behind:\n") as caught, guard:
        kept.append(leave())
    return str(caught.value), kept[0]


def test_running_process_is_reported_with_its_command_and_killed() -> None:
    report, process = report_of(start_sleeper)
    assert re.search(rf"process {process.pid} .*time\.sleep\(60\)", report)
    assert process_entry(process.pid) is None  # killed and collected
    process.wait()


def test_stopped_process_is_reported_and_killed() -> None:
    def leave() -> subprocess.Popen[bytes]:
        process = start_sleeper()
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        return process

    report, process = report_of(leave)
    assert f"process {process.pid} (state T)" in report
    assert process_entry(process.pid) is None
    process.wait()


def test_grandchild_is_reported() -> None:
    report, (process, grandchild) = report_of(start_with_grandchild)
    assert {int(pid) for pid in re.findall(r"process (\d+)", report)} == {process.pid, grandchild}
    assert not process_runs(process.pid)
    assert not process_runs(grandchild)
    process.wait()
    close_pipes(process)


def test_grandchild_whose_parent_ended_is_reported() -> None:
    def leave() -> int:
        process, grandchild = start_with_grandchild()
        process.kill()
        process.wait()
        close_pipes(process)
        return grandchild

    report, grandchild = report_of(leave)
    assert re.findall(r"process (\d+)", report) == [str(grandchild)]
    assert process_entry(grandchild) is None


def test_process_that_is_about_to_leave_is_waited_for() -> None:
    with LeakGuard(grace_s=20.0):
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.2)"])
    assert process_entry(process.pid) is None
    process.wait()


def test_process_of_before_may_stay() -> None:
    process = start_sleeper()
    with LeakGuard(grace_s=0.0):
        os.kill(process.pid, signal.SIGSTOP)
    assert process_runs(process.pid)
    process.kill()
    process.wait()


@pytest.mark.parametrize("daemon", [False, True])
def test_thread_is_reported_by_name(daemon: bool) -> None:
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait, name="the sleeper", daemon=daemon)
    report, _ = report_of(thread.start)
    kind = "daemon thread" if daemon else "thread"
    assert report == f"left behind:\n  {kind} 'the sleeper'"
    leave.set()
    thread.join()


def test_file_and_pipe_are_reported_by_what_they_lead_to(tmp_path: Path) -> None:
    path = tmp_path / "left.txt"
    report, left = report_of(
        lambda: [os.open(path, os.O_CREAT), os.open(path, os.O_RDONLY), *os.pipe()]
    )
    assert f"file descriptor to {path}, 2 times" in report
    assert re.search(r"file descriptor to pipe:\[\d+\], 2 times", report)
    for fd in left:
        os.close(fd)


def test_descriptor_under_the_number_of_another_is_reported(tmp_path: Path) -> None:
    first = os.open(tmp_path / "first", os.O_CREAT)

    def leave() -> int:
        os.close(first)
        return os.open(tmp_path / "second", os.O_CREAT)

    report, second = report_of(leave)
    assert report == f"left behind:\n  file descriptor to {tmp_path / 'second'}"
    assert second == first
    os.close(second)


def test_descriptor_in_a_cycle_goes_with_the_collection(tmp_path: Path) -> None:
    class Owner:
        def __init__(self) -> None:
            self.myself = self
            self.fd = os.open(tmp_path / "file", os.O_CREAT)

        def __del__(self) -> None:
            os.close(self.fd)

    with LeakGuard(grace_s=0.05):
        Owner()


# The guards of tests beside it would take the segment for one of theirs.
@pytest.mark.alone
def test_named_segment_is_reported_and_removed() -> None:
    def leave() -> str:
        segment = shared_memory.SharedMemory(create=True, size=64)
        segment.close()
        return segment.name

    report, name = report_of(leave)
    assert report == f"left behind:\n  segment /dev/shm/{name}"
    assert not Path("/dev/shm", name).exists()
    # It would look for it at the end of the run, and warn.
    resource_tracker.unregister(f"/{name}", "shared_memory")


FOREIGN = """
import mmap, os, sys
if os.fork(): os._exit(0)
print(os.getpid(), flush=True)
sys.stdin.readline()
with open(sys.argv[1], "wb+") as file:
    file.truncate(10)
    shown = mmap.mmap(file.fileno(), 10)
print("mapped", flush=True)
sys.stdin.readline()
os.unlink(sys.argv[1])
"""


def test_segment_that_another_program_maps_is_none_of_ours() -> None:
    path = f"/dev/shm/parllel-foreign-{os.getpid()}"
    adopting = set_adopting(False)  # of the guard around this test: let it escape
    process = subprocess.Popen(
        [sys.executable, "-c", FOREIGN, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.wait()
    set_adopting(adopting)
    assert pid not in {entry.pid for entry in descendants(os.getpid())}
    with LeakGuard(grace_s=0.0):
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"mapped\n"
    assert os.path.exists(path)
    process.stdin.close()
    process.stdout.read()
    process.stdout.close()
    assert not os.path.exists(path)


def leave_at_once(connection: Any) -> None:
    connection.send_bytes(b"here")


def test_servers_of_multiprocessing_may_stay() -> None:
    with LeakGuard():
        for method in mp.get_all_start_methods():
            child = Child(leave_at_once, start_method=method)
            assert child.receive(30, "") == b"here"
            child.end()
            process = mp.get_context(method).Process(target=time.time)  # type: ignore[attr-defined]
            process.start()
            process.join()
            process.close()
        resource_sharer.stop(timeout=5)
    assert forkserver_pid() in {entry.pid for entry in descendants(os.getpid())}


def test_error_of_the_body_comes_first_and_the_process_is_killed() -> None:
    started = []

    def leave() -> None:
        with LeakGuard(grace_s=0.05):
            started.append(start_sleeper())
            raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        leave()
    assert process_entry(started[0].pid) is None
    started[0].wait()


@pytest.mark.parametrize("listed", [True, False])
def test_table_tells_an_uncollected_process_from_a_running_one(
    listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not listed:  # as where the kernel does not
        monkeypatch.setattr(process_table, "_lists_children", lambda: False)
    elif not process_table._lists_children():
        pytest.skip("this kernel does not list the children of threads")
    process, grandchild = start_with_grandchild()
    entry = process_entry(process.pid)
    assert entry is not None
    assert entry.parent == os.getpid()
    assert entry.runs
    assert "subprocess.Popen" in command_of(process.pid)
    assert {(found.pid, found.parent) for found in descendants(os.getpid())} >= {
        (process.pid, os.getpid()),
        (grandchild, process.pid),
    }
    os.kill(grandchild, signal.SIGKILL)
    close_pipes(process)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not process_runs(process.pid)
    assert process_entry(process.pid) is not None
    process.wait()
    assert process_entry(process.pid) is None
    assert command_of(process.pid) == "?"


SUITE = """
import os, subprocess, sys, pytest

def start(*args):
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

def test_leaves_a_process():
    start()

def test_after_it():
    pass

def test_fails_and_leaves_a_process():
    process = start()
    assert process.pid == 0

def test_skipped_and_leaves_a_process():
    start()
    pytest.skip("for a reason")
"""


def test_suite_with_this_guard_reports_what_a_test_left(tmp_path: Path) -> None:
    conftest = Path(__file__).parents[1] / "conftest.py"
    (tmp_path / "conftest.py").write_text(
        conftest.read_text().replace("LeakGuard()", "LeakGuard(grace_s=0.05)")
    )
    (tmp_path / "test_suite.py").write_text(SUITE)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-W", "ignore", tmp_path],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    outcomes = {line.split(" - ")[0] for line in run.stdout.splitlines()}
    assert "ERROR test_suite.py::test_leaves_a_process" in outcomes, run.stdout + run.stderr
    assert "ERROR test_suite.py::test_after_it" not in outcomes
    assert "FAILED test_suite.py::test_fails_and_leaves_a_process" in outcomes
    assert "ERROR test_suite.py::test_fails_and_leaves_a_process" not in outcomes
    assert "ERROR test_suite.py::test_skipped_and_leaves_a_process" in outcomes
    assert "time.sleep(60)" in run.stdout
