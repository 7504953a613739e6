"""Nothing is left of a program once it was ended, or once its parent was killed."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from program_parent import NASTY
from starting import LONG_S
from waiting import until

from parllel.system.processes import Program
from parllel.system.processes.child import Child
from parllel.system.processes.fork_server import forkserver_pid
from parllel.system.processes.process_table import (
    command_of,
    descendants,
    process_entry,
    process_runs,
)

PARENT = Path(__file__).with_name("program_parent.py")


def ids_of(program: Program, n: int) -> list[int]:
    return [int(program.read_line(LONG_S)) for _ in range(n)]


@pytest.mark.parametrize("grace_s", [0.0, 0.05])
def test_program_that_ignores_sigterm_ends_with_its_sessions(grace_s: float) -> None:
    script = (
        "trap '' TERM; sleep 60 & echo $!; setsid sleep 60 & echo $!; while :; do sleep 1; done"
    )
    program = Program(["sh", "-c", script])
    below = ids_of(program, 2)
    program.end(grace_s)
    assert process_entry(program.pid) is None
    until(lambda: not any(process_runs(pid) for pid in below))


def test_terminate_sends_one_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    killpg = os.killpg

    def slow_killpg(group: int, number: int) -> None:
        killpg(group, number)
        time.sleep(0.3)  # the program handles the signal meanwhile

    monkeypatch.setattr(os, "killpg", slow_killpg)
    script = "trap 'echo signal' TERM; echo ready; while :; do sleep 0.01; done"
    program = Program(["sh", "-c", script])
    assert program.read_line(LONG_S) == b"ready"
    program.terminate()
    assert program.read_line(LONG_S) == b"signal"
    assert program.try_read_line(0.5) is None
    program.kill()


@pytest.mark.parametrize("then", ["exec sleep 60", "exit 0", "kill -9 $$"])
def test_daemon_of_a_program_ends_with_it(then: str) -> None:
    program = Program(["sh", "-c", f"setsid sh -c '(setsid sleep 60 & echo $!)'; {then}"])
    (daemon,) = ids_of(program, 1)
    if "sleep" not in then:
        until(program.died)
    assert process_runs(daemon)
    program.end(0.01)
    until(lambda: not process_runs(daemon))


def test_program_that_moves_to_a_session_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "id"
    program = Program(["setsid", "sh", "-c", f"echo $$ >{file}; exec sleep 60"])
    assert program.wait(LONG_S) == 0  # a leader of a session has to fork for another
    until(lambda: file.exists() and file.read_text() != "")
    program.end()
    until(lambda: not process_runs(int(file.read_text())))


def test_program_leaves_at_the_end_of_its_input_even_with_much_to_say(tmp_path: Path) -> None:
    script = f"cat >/dev/null; seq 1000000; touch {tmp_path}/left"
    program = Program(["sh", "-c", script])
    program.end(grace_s=LONG_S)
    assert program.exit_text() == "exited with code 0"
    assert [path.name for path in tmp_path.iterdir()] == ["left"]


def test_program_that_starts_daemons_without_pause_leaves_none() -> None:
    daemons = "while :; do setsid sh -c '(setsid sleep 60 &)'; done"
    for delay_s in (0.0, 0.01, 0.02, 0.04, 0.08):
        token = secrets.token_hex(8)
        program = Program(["sh", "-c", f"{daemons} & {daemons}"], environment={"TOKEN": token})
        time.sleep(delay_s)
        program.kill()
        assert of_token(token) == []


def test_forgotten_program_is_ended() -> None:
    program = Program(["sleep", "60"])
    pid = program.pid
    holder = [program]
    holder.append(holder)  # type: ignore[arg-type]
    del program, holder
    gc.collect()
    until(lambda: not process_runs(pid))


def test_program_outlives_the_thread_that_started_it() -> None:
    started: list[Program] = []
    thread = threading.Thread(target=lambda: started.append(Program(["cat"])))
    thread.start()
    thread.join()
    started[0].write(b"word\n")
    assert started[0].read_line(LONG_S) == b"word"
    started[0].end()


# ---------------------------------------------------------------------- killed parents


def of_token(token: str) -> list[int]:
    """Return the running processes with a token in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if token.encode() in path.read_bytes() and process_runs(int(path.parent.name)):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def kill_a_parent(n_words: int, pause_s: float) -> str:
    """Kill a parent of programs a moment after it has said so many words; return the last one."""
    token = secrets.token_hex(8)
    parent = subprocess.Popen(
        [sys.executable, str(PARENT), token],
        env={**os.environ, "TOKEN_OF_TEST": token},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert parent.stdout is not None
    words = ["began", *(parent.stdout.readline().decode().strip() for _ in range(n_words))]
    time.sleep(pause_s)
    family = {entry.pid for entry in descendants(parent.pid)}
    assert parent.poll() is None
    parent.kill()
    said, errors = parent.communicate(timeout=LONG_S)
    # A fork of the server was waiting for what it should run, or the server for its descriptors.
    assert errors == b"" or errors.endswith((b"EOFError: Ran out of input\n", b"\nEOFError\n"))
    deadline = time.monotonic() + LONG_S
    while left := {*of_token(token), *filter(process_runs, family)}:
        assert time.monotonic() < deadline, f"left of a parent after {words}: {left}"
        time.sleep(0.02)
    return [*words, *said.decode().split()][-1]


def kill_parents(n: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    return Counter(kill_a_parent(i % 8, chance.uniform(0.0, 0.5)) for i in range(n))


def test_killed_parents_leave_nothing() -> None:
    assert kill_parents(5, seed=0).total() == 5


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_killed_parents_leave_nothing() -> None:
    phases = kill_parents(100, seed=1)
    print(dict(phases))
    assert phases.total() == 100
    assert {"began", "imported", "started"} <= set(phases)


FAMILY = """
import os, time
from parllel.system.processes import Program
from parllel.system.processes.fork_server import forkserver_pid
program = Program(["sh", "-c", "trap '' TERM INT HUP; sleep 60 & echo; while :; do sleep 1; done"])
program.read_line(30)
print(forkserver_pid(), program.pid, flush=True)
time.sleep(60)
"""


def test_program_ends_with_a_parent_whose_fork_server_was_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    server, program = map(int, parent.stdout.readline().split())
    below = [entry.pid for entry in descendants(program)]
    os.kill(server, signal.SIGKILL)
    until(lambda: not process_runs(server))
    assert process_runs(program)
    parent.kill()
    parent.communicate()
    until(lambda: not any(process_runs(pid) for pid in (program, *below)))


BREAKING_OFF = """
import os, signal, socket, time
from parllel.system.processes import Program
from parllel.system.processes.fork_server import fork_server
program = Program(["sh", "-c", "setsid sleep 60 & echo $!; wait"])
print(int(program.read_line(30)), flush=True)
request = socket.socket(socket.AF_UNIX)
request.connect(fork_server()._server._forkserver_address)
time.sleep(0.5)  # until the server reads the request
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_program_ends_with_a_parent_that_was_killed_in_a_request() -> None:
    """The fork server then fails with an exception, instead of seeing its pipe hang up."""
    command = [sys.executable, "-c", BREAKING_OFF]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said, errors = parent.communicate(timeout=LONG_S)
    # Nothing, if the machine was so busy that the server had not begun to read: its pipe hangs up then.
    assert errors == b"" or errors.endswith(b"\nEOFError\n")
    until(lambda: not process_runs(int(said)))


@pytest.mark.usefixtures("hasty")
def test_program_runs_on_without_its_fork_server() -> None:
    with Program(["cat"]) as program:
        server = forkserver_pid()
        assert server is not None
        os.kill(server, signal.SIGKILL)
        until(lambda: not process_runs(server))
        assert program.wait(0.01) is None
        assert program.exit_text() == "stopped answering"
        program.write(b"word\n")
        assert program.read_line(LONG_S) == b"word"


def test_program_of_a_killed_child_ends() -> None:
    """The child's own fork server notices."""
    child = Child(hold_a_program, start_method="fork")
    program, below = map(int, child.receive(LONG_S, "starting").split())
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: not process_runs(program) and not process_runs(below))
    child.end()


def hold_a_program(connection: Connection) -> None:
    program = Program(
        ["sh", "-c", "trap '' TERM; setsid sleep 60 & echo $!; while :; do sleep 1; done"]
    )
    connection.send_bytes(b"%d " % program.pid + program.read_line(LONG_S))
    time.sleep(60)


# ---------------------------------------------------------------------- many starts


def holdings(others: set[int]) -> tuple[int, int, int, list[str]]:
    """Return the numbers of descriptors of this process and of its fork server, threads, and descendants.

    others: processes that are left out, with all below them.
    """
    ours, theirs = (len(os.listdir(f"/proc/{pid}/fd")) for pid in (os.getpid(), forkserver_pid()))
    below = {entry.pid for entry in descendants(os.getpid())} - others
    for pid in others:
        below -= {entry.pid for entry in descendants(pid)}
    names = sorted(command_of(pid) for pid in below)
    return ours, theirs, threading.active_count(), names


def memory() -> int:
    """Return the bytes that this process and its fork server have to themselves."""
    total = 0
    for pid in (os.getpid(), forkserver_pid()):
        resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
        total += (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    return total


def start_and_end(n: int) -> None:
    kinds = (["cat"], ["sh", "-c", NASTY], ["false"], ["yes"])
    for i in range(n):
        with pytest.raises(FileNotFoundError, match="not-a-program"):
            Program(["not-a-program"])
        program = Program(kinds[i % len(kinds)])
        if i % 4 == 0:
            program.write(b"word\n")
            assert program.read_line(LONG_S) == b"word"
        program.end(0.0 if i % 8 == 1 else 0.01)


@pytest.mark.parametrize("n", [30, pytest.param(1000, marks=pytest.mark.soak)])
@pytest.mark.timeout(3600)
def test_starts_and_ends_leave_nothing(n: int) -> None:
    start_and_end(1)  # the fork server and the resource tracker stay
    stay = {forkserver_pid(), resource_tracker._resource_tracker._pid}  # type: ignore[attr-defined]
    # Services of the session, such as Ray, if their tests came first.
    others = {entry.pid for entry in descendants(os.getpid())} - stay
    start_and_end(8 + n // 10)  # until what is kept for later use is there
    until(lambda: len(holdings(others)[-1]) == 2)
    before = holdings(others)
    gc.collect()
    blocks, size = sys.getallocatedblocks(), memory()
    start_and_end(n)
    with contextlib.suppress(AssertionError):  # shown by the next
        until(lambda: holdings(others) == before)
    assert holdings(others) == before
    gc.collect()
    more_blocks, more_bytes = sys.getallocatedblocks() - blocks, memory() - size
    print(f"{n} starts: {more_blocks} more objects, {more_bytes} more bytes")
    assert more_blocks < 500 + n // 10
    # The system's allocator keeps some for each thread that ever was.
    assert more_bytes < 2**22
