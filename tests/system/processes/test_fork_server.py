"""The fork server: stopped, killed, far from the root of the file system."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import child_targets as targets
import pytest
from python_code import run_code
from start_methods import METHODS
from starting import LONG_S, ready
from waiting import until

from parllel.cages import ProcessCage, SynchronizedProcessCage
from parllel.errors import WorkerDiedError, WorkerTimeoutError
from parllel.samplers import AsynchronousSampler, Sampler
from parllel.system.processes import Program, fork_server, launch
from parllel.system.processes.child import Child
from parllel.system.processes.fork_server import forkserver_pid
from parllel.system.processes.process_table import process_entry, process_runs
from parllel.testing import CountingEnv


@pytest.fixture(autouse=True)
def light_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put aside the server of the other tests: one that imports little starts sooner."""
    monkeypatch.setattr(fork_server, "_preload", [])
    monkeypatch.setattr(fork_server, "_server", None)
    yield
    fork_server.fork_server().kill()


def started_server() -> int:
    ready(Child(targets.echo, start_method="forkserver")).kill()
    server = forkserver_pid()
    assert server is not None
    return server


def test_a_stopped_fork_server_is_replaced() -> None:
    server = started_server()
    os.kill(server, signal.SIGSTOP)
    with pytest.raises(
        WorkerTimeoutError,
        match=rf"cage 3: could not start its process: fork server, process {server}: did not start "
        r"a process within 0\.2 s \(perhaps it was stopped\) and was killed; the next start uses a new one",
    ):
        # More than a pipe takes: nothing may be written before the server has answered.
        Child(
            targets.echo_inherited,
            (bytes(200_000),),
            name="cage 3",
            start_method="forkserver",
            start_timeout_s=0.2,
        )
    assert not process_runs(server)
    child = ready(Child(targets.echo, start_method="forkserver"))
    assert forkserver_pid() not in (None, server)
    child.kill()


def test_a_fork_server_that_owes_its_key_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.14 on the two exchange keys first; played here by a request that is never made."""
    server = started_server()
    theirs = fork_server.fork_server()._server

    def connect(fds: list[int]) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(theirs._forkserver_address)
            if not client.recv(1):
                raise EOFError

    monkeypatch.setattr(theirs, "_forkserver_authkey", b"key", raising=False)
    monkeypatch.setattr(theirs, "connect_to_new_process", connect)
    with pytest.raises(
        WorkerTimeoutError, match=rf"process {server}: did not start a process within"
    ):
        Child(targets.echo, start_method="forkserver", start_timeout_s=0.2)
    assert not process_runs(server)
    ready(Child(targets.echo, start_method="forkserver")).kill()


STARTS: dict[str, Callable[[], Any]] = {
    "ProcessCage": lambda: ProcessCage(CountingEnv, timeout_s=0.3),
    "SynchronizedProcessCage": lambda: SynchronizedProcessCage(
        [CountingEnv] * 2, n_workers=2, timeout_s=0.3
    ),
    "AsynchronousSampler": lambda: AsynchronousSampler(Sampler, timeout_s=0.3),
    "Program": lambda: Program(["true"], start_timeout_s=0.3),
}


@pytest.mark.parametrize("kind", STARTS)
def test_starts_by_a_stopped_fork_server_end_at_their_time_out(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = started_server()
    os.kill(server, signal.SIGSTOP)
    with pytest.raises(
        WorkerTimeoutError, match=rf"process {server}: did not start a process within 0\.3 s"
    ):
        STARTS[kind]()
    assert not process_runs(server)
    monkeypatch.setattr(fork_server, "_preload", [])  # what a cage has it import takes long
    ready(Child(targets.echo, start_method="forkserver")).kill()


def test_a_start_does_not_wait_longer_for_that_of_another_thread() -> None:
    server = started_server()
    os.kill(server, signal.SIGSTOP)
    found: list[BaseException] = []

    def start() -> None:
        try:
            Child(targets.echo, start_method="forkserver", start_timeout_s=LONG_S)
        except BaseException as error:
            found.append(error)

    other = threading.Thread(target=start)
    other.start()
    until(lambda: _is_taken(launch._lock))
    with pytest.raises(
        WorkerTimeoutError,
        match=r"child: could not start its process: another thread has been starting a process for 0\.2 s",
    ):
        Child(targets.echo, start_method="forkserver", start_timeout_s=0.2)
    os.kill(server, signal.SIGKILL)
    other.join(LONG_S)
    assert [type(error) for error in found] == [WorkerDiedError]


def _is_taken(lock: Any) -> bool:
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


def test_a_fork_server_that_ends_instead_of_starting_a_process() -> None:
    server = started_server()
    os.kill(server, signal.SIGSTOP)
    threading.Timer(0.1, os.kill, (server, signal.SIGKILL)).start()
    with pytest.raises(
        WorkerDiedError,
        match=rf"child: .* process {server}: ended instead of .*; limits of process",
    ):
        Child(targets.echo, start_method="forkserver")
    ready(Child(targets.echo, start_method="forkserver")).kill()


def test_a_fork_server_that_others_have_collected_is_replaced() -> None:
    server = started_server()
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    assert started_server() != server


def descriptors(pid: int) -> set[int]:
    return {int(name) for name in os.listdir(f"/proc/{pid}/fd")}


def test_children_outlive_a_fork_server_that_fails() -> None:
    child = ready(Child(targets.echo, start_method="forkserver"))
    server = forkserver_pid()
    assert server is not None
    # It needs more for a request. One that it closes at this moment would leave room.
    until(lambda: descriptors(server) == (time.sleep(0.1), descriptors(server))[1])
    used = next(n for n in range(10_000) if n not in descriptors(server))
    resource.prlimit(server, resource.RLIMIT_NOFILE, (used, used))
    with pytest.raises(WorkerDiedError, match="ended instead of starting a process"):
        Child(targets.echo, start_method="forkserver")
    until(lambda: not process_runs(server))
    child.send_bytes(b"still here")
    assert child.receive(LONG_S, "echoing") == b"still here"
    child.kill()


def test_what_the_fork_server_imports_is_not_searched_for_garbage() -> None:
    """Or each child would copy it all with its first collection; of its own objects it does collect."""
    child = Child(targets.tell_collector, start_method="forkserver")
    enabled, n_frozen = map(int, child.receive(LONG_S, "collector").split())
    child.kill()
    assert enabled
    assert n_frozen > 1000


def test_fork_server_works_where_the_temporary_folder_is_deep(tmp_path: Path) -> None:
    deep = tmp_path / "/".join(["a-long-name-of-a-folder"] * 6)
    deep.mkdir(parents=True)
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import child_targets\n"
        "from parllel.system.processes.child import Child\n"
        "child = Child(child_targets.echo, start_method='forkserver')\n"
        "print(child.receive(30, 'at start').decode())\n"
        "child.kill()"
    )
    done = run_code(code, env={**os.environ, "TMPDIR": str(deep)})
    assert (done.stdout, done.stderr) == ("ready\n", "")
    assert list(deep.iterdir()) == []


def test_the_socket_of_the_fork_server_has_no_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A folder that no other process makes anything in.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server = started_server()
    os.kill(server, signal.SIGKILL)  # so that a new one is made
    until(lambda: (entry := process_entry(server)) is None or not entry.runs)
    started_server()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(("parllel-", "pymp-"))]


@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_while_a_process_starts_ends_no_child(method: str) -> None:
    """A terminal sends SIGINT to all processes in the foreground, also to those that have just begun."""
    interrupted: list[int] = []
    stop = threading.Event()

    def interrupt() -> None:
        while not stop.is_set():
            for pid in set(children_of(os.getpid())) | set(children_of(forkserver_pid() or 0)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
                    interrupted.append(pid)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        child = ready(Child(targets.echo, start_method=method))
    finally:
        stop.set()
        thread.join()
    assert child.pid in interrupted
    assert method != "forkserver" or forkserver_pid() in interrupted
    child.send_bytes(b"alive")
    assert child.receive(LONG_S, "afterwards") == b"alive"
    status = Path(f"/proc/{child.pid}/status").read_text()
    masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    bit = 1 << (signal.SIGINT - 1)
    # Ignored and not blocked: programs that it starts are to inherit no blocked signal.
    assert int(masks["SigIgn"], 16) & bit
    assert not int(masks["SigBlk"], 16) & bit
    child.kill()


def children_of(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


STOPS = """
import os, signal
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGSTOP))
"""


def test_a_child_that_stops_before_it_reads_its_target_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it is to run may be longer than a pipe takes."""
    (tmp_path / "stopping.py").write_text(STOPS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(fork_server, "_preload", ["stopping"])
    with pytest.raises(
        WorkerTimeoutError,
        match=r"cage 3: process \d+ did not accept its target within 0\.3 s",
    ):
        Child(
            targets.echo_inherited,
            (bytes(1_000_000),),
            name="cage 3",
            start_method="forkserver",
            start_timeout_s=0.3,
        )
