"""What a foreign program starts with, what keeps it from starting, and what may be set."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from starting import LONG_S, Run

from parllel.errors import ClosedError, WorkerDiedError
from parllel.system.processes import Program, launch
from parllel.system.processes.program_start import program_environment


def test_only_listed_variables_are_passed(
    run_either_way: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "OPENAI_API_KEY",
        "LC_TIME",
        "OMP_NUM_THREADS",
        "TMPDIR",
        "A_FLAG",
        "PARLLEL_WORKER",
    ):
        monkeypatch.setenv(name, f"secret of {name}")
    program = run_either_way(
        "echo; read line",
        environment={"TMPDIR": "/tmp", "TOKEN": "given"},
        passed=["OMP_*", "A_FLAG", "NEVER_SET"],
    )
    program.read_line(LONG_S)  # while it is started it has none yet
    content = Path(f"/proc/{program.pid}/environ").read_text()
    found = dict(item.split("=", 1) for item in content.split("\0") if item)
    assert "OPENAI_API_KEY" not in content
    assert found["TOKEN"] == "given"
    assert found["TMPDIR"] == "/tmp"
    assert found["PATH"] == os.environ["PATH"]
    for name in ("LC_TIME", "OMP_NUM_THREADS", "A_FLAG"):
        assert found[name] == f"secret of {name}"
    assert found["PARLLEL_WORKER"] != "secret of PARLLEL_WORKER"
    assert "NEVER_SET" not in found


def test_nothing_else_is_inherited(run: Run) -> None:
    program = run(
        "ls /proc/self/fd; exec grep --line-buffered -hE 'Sig(Ign|Blk)' /proc/self/status -"
    )
    numbers = {int(program.read_line(LONG_S)) for _ in range(5)}
    # The guard, whose number is out of the way of scripts, and the listing itself.
    assert numbers == {0, 1, 2, 3, 100}
    masks = [int(program.read_line(LONG_S).split(b"\t")[1], 16) for _ in range(2)]
    # Signals 32 and 33 belong to the C library, which lets no program set them, and has them ignored in what
    # is started by posix_spawn, as `make` does.
    # What `nohup` has ignored stays so: the program is to survive the terminal as this process does.
    hangup = int(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)
    assert [mask & ~(0b11 << 31) for mask in masks] == [0, hangup]
    assert os.getsid(program.pid) == os.getpgid(program.pid) == program.pid


def test_program_that_cannot_be_started_is_an_error_at_once(
    run_either_way: Run, tmp_path: Path
) -> None:
    del run_either_way  # for its two ways alone
    script = tmp_path / "script"
    script.write_text("#!/not/there\n")
    with pytest.raises(
        FileNotFoundError, match=r"could not start the program: .*: 'not-a-program'"
    ):
        Program(["not-a-program", "--help"])
    with pytest.raises(PermissionError, match=f"Permission denied: '{script}'"):
        Program([script])
    script.chmod(0o700)
    with pytest.raises(FileNotFoundError, match=f"'{script}'"):
        Program([script])
    with pytest.raises(FileNotFoundError, match=r"could not enter the folder for sh: .*/missing'"):
        Program(["sh"], cwd=tmp_path / "missing")
    with pytest.raises(NotADirectoryError, match="could not enter the folder for sh"):
        Program(["sh"], cwd=script)
    script.write_text("#!/bin/sh\n")
    with Program(["./script"], cwd=tmp_path, environment={"PATH": ""}, name="fixed") as program:
        assert program.name == "fixed"


def test_limit_of_open_files_is_named() -> None:
    Program(["true"]).end()
    before = set(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in range(1, 21, 3):
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + spare, limits[1]))
        try:
            with pytest.raises(
                OSError, match=r"true: could not start it, .*; limits of process \d+: open"
            ):
                Program(["true"])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert set(os.listdir("/proc/self/fd")) == before


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="command: expected a list of words, got 'sleep 60'"):
        Program("sleep 60")
    with pytest.raises(
        ValueError, match="command: expected a program and its arguments, got an empty"
    ):
        Program([])
    for words, match in (
        (["echo", "a\0b"], r"command: expected words without a zero byte, got 'a\\x00b'"),
        (["", "a"], "command: expected the name of a program first, got an empty word"),
        (["echo", "\ud800"], "surrogates not allowed"),
    ):
        with pytest.raises(ValueError, match=match):
            Program(words)
    for variables, match in (
        ({"A=B": "x"}, "environment: 'A=B': expected a name without '=' and zero bytes"),
        ({"": "x"}, "environment: '': expected a name"),
        ({"A": "x\0"}, "environment: 'A': expected text without zero bytes"),
        ({"A": 1}, "environment: 'A': expected text, got int"),
    ):
        with pytest.raises((TypeError, ValueError), match=match):
            Program(["true"], environment=variables)
    with pytest.raises(ValueError, match="sh: max_line_bytes: expected at least 1, got 0"):
        Program(["sh"], max_line_bytes=0)


def test_errors_go_to_a_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("of an earlier program\n")
    program = run("echo said >&2; echo; exec sleep 60", stderr=path)
    program.read_line(LONG_S)
    assert program.last_lines() == ["said"]
    program.kill()
    assert program.last_lines() == ["said"]
    assert path.read_text() == "of an earlier program\nsaid\n"
    run("true", stderr=tmp_path / "new.txt")
    assert (tmp_path / "new.txt").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["pipe", "fifo"])
def test_errors_may_go_to_what_cannot_be_read_again(run: Run, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    stderr = path if kind == "fifo" else f"/proc/self/fd/{reader}"
    program = run("echo said >&2; exit 3", stderr=stderr)
    with pytest.raises(
        WorkerDiedError, match=r"with code 3 .* its standard error cannot be read back"
    ):
        program.read_line(LONG_S)
    assert os.read(reader, 100) == b"said\n"
    program.end()
    os.close(reader)
    assert program.last_lines() == []


def test_program_may_open_its_errors_anew(run: Run) -> None:
    program = run("echo one, long >&2; echo two > /dev/stderr; echo three >&2")
    program.wait(LONG_S)
    assert program.last_lines() == ["two", "three"]


def test_variables_that_another_start_sets_for_its_time_are_not_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    inside, leave = threading.Event(), threading.Event()

    def start_another() -> None:
        with launch._lock, launch._environment(launch.ONE_THREAD):
            inside.set()
            leave.wait(LONG_S)

    thread = threading.Thread(target=start_another)
    thread.start()
    inside.wait(LONG_S)
    timer = threading.Timer(0.1, leave.set)
    timer.start()
    assert "OMP_NUM_THREADS" not in program_environment({}, ["OMP_*"])
    thread.join(LONG_S)
    timer.join(LONG_S)


def test_output_may_be_discarded(run: Run) -> None:
    program = run("head -c 10000000 /dev/zero; exit 3", lines=False)
    assert program.wait(LONG_S) == 3
    with pytest.raises(ValueError, match="the script: was started with lines=False"):
        program.read_line(LONG_S)


def test_use_after_the_end(run: Run) -> None:
    with run("echo word; exec cat") as program:
        pass
    program.close()
    for use in (lambda: program.write(b"word"), lambda: program.read_line(1.0)):
        with pytest.raises(ClosedError, match="the script: used after it was ended"):
            use()
    assert program.wait(0.0) == 0
    assert program.exit_text() == "exited with code 0"
    assert not program.alive


DETACHED = """
import os
answer = os.dup(1)
for standard in (0, 1, 2):
    os.close(standard)
from parllel.system.processes import Program
with Program(["sh", "-c", "cat; echo last >&2; exit 4"]) as program:
    program.write(b"word\\n")
    program.close_input()
    said = program.read_line(30), program.wait(30), program.last_lines()
os.write(answer, repr(said).encode())
"""


def test_process_without_standard_files_may_start_programs() -> None:
    done = subprocess.run([sys.executable, "-c", DETACHED], capture_output=True, check=False)
    assert done.stdout == b"(b'word', 4, ['last'])"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_daemonic_processes_may_start_programs_too() -> None:
    """Multiprocessing forbids them its own way of starting others."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=greet, args=(theirs,), daemon=True)
    process.start()
    assert ours.poll(LONG_S)
    assert ours.recv_bytes() == b"hello"
    process.join(LONG_S)
    process.close()
    ours.close()
    theirs.close()


def greet(connection: Connection) -> None:
    with Program(["echo", "hello"]) as program:
        connection.send_bytes(program.read_line(LONG_S))
