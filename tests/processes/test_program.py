"""A foreign program is spoken to in lines, whatever it does with its pipes."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starting import until

from parllel.errors import (
    ClosedError,
    HalfLineError,
    LineTooLongError,
    WorkerDiedError,
    WorkerTimeoutError,
)
from parllel.processes import Program, process_entry, program_start, watched_process

LONG_S = 30.0
Start = Callable[..., Program]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a script of the shell; ends them all."""
    started: list[Program] = []

    def start_program(script: str, **options: object) -> Program:
        options = {"name": "the script", **options}
        program = Program(["sh", "-c", script], **options)  # type: ignore[arg-type]
        started.append(program)
        return program

    yield start_program
    for program in started:
        program.kill()


@pytest.fixture(params=["fork server", "subprocess"])
def start_either_way(
    start: Start, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Start:
    """The same by the fork server, and as on systems that have neither that nor pidfds."""
    if request.param == "subprocess":
        monkeypatch.setattr(program_start, "_has_guards", lambda: False)
        monkeypatch.setattr(watched_process, "_open_pidfd", lambda pid: -1)
    return start


def state_of(program: Program) -> str:
    entry = process_entry(program.pid)
    return "" if entry is None else entry.state


# ---------------------------------------------------------------------- lines, time-outs and deaths


def test_lines_go_both_ways(start_either_way: Start) -> None:
    program = start_either_way("cat")
    long = bytes(range(11, 256)) * 10_000
    for line in (b"one", b"", b"\r", long):
        program.write(line + b"\n")
        assert program.read_line(LONG_S) == line
    program.write(memoryview(b"two\nthree"))
    assert program.read_line(LONG_S) == b"two"
    assert program.try_read_line(0.01) is None
    program.write(b"\n")
    assert program.read_line(LONG_S) == b"three"
    program.close_input()
    assert program.wait(LONG_S) == 0


def test_silence_is_no_death(start: Start) -> None:
    program = start("read line; echo $line; exec sleep 60")
    assert program.try_read_line() is None
    with pytest.raises(
        WorkerTimeoutError, match=r"the script: process \d+ wrote no line within 0\.01 s"
    ):
        program.read_line(0.01)
    assert program.alive
    program.write(b"at last\n")
    assert program.read_line(LONG_S) == b"at last"


def test_lines_before_a_death_come_before_it(start_either_way: Start) -> None:
    program = start_either_way("seq 100; echo the reason >&2; exit 7")
    until(program.died)
    assert [program.read_line(LONG_S) for _ in range(100)][-1] == b"100"
    for _ in range(2):
        with pytest.raises(
            WorkerDiedError,
            match=r"the script: process \d+ exited with code 7 while its next line was awaited; "
            r"the end of its standard error:\n  the reason",
        ):
            program.read_line(LONG_S)
    with pytest.raises(WorkerDiedError, match="exited with code 7 before it took its input"):
        program.write(b"anyone?")


def test_half_a_line_at_the_end_is_none(start_either_way: Start) -> None:
    program = start_either_way("printf 'whole\\nhalf'; kill -9 $$")
    assert program.read_line(LONG_S) == b"whole"
    for _ in range(2):
        with pytest.raises(
            HalfLineError,
            match=r"was killed by SIGKILL in a line of which 4 bytes came; it wrote nothing",
        ) as raised:
            program.try_read_line(LONG_S)
        assert raised.value.half_line == b"half"


@pytest.mark.parametrize("holder", ["sleep 60", "while :; do echo more; done"])
def test_death_is_noticed_while_another_process_holds_the_output(start: Start, holder: str) -> None:
    program = start(f"echo first; ({holder}) & exit 4")
    assert program.read_line(LONG_S) == b"first"
    lines = iter(lambda: program.read_line(LONG_S), b"the last")
    with pytest.raises(WorkerDiedError, match="exited with code 4"):
        assert set(lines) == {b"more"}


def test_program_that_closes_its_output_is_of_no_use(start: Start) -> None:
    program = start("echo first; exec >&-; exec sleep 60")
    assert program.read_line(LONG_S) == b"first"
    with pytest.raises(WorkerDiedError, match="closed its end of the pipe, but runs on, while"):
        program.read_line(LONG_S)
    assert program.alive


# ---------------------------------------------------------------------- much at once


def test_flood_on_output_waits_until_it_is_read(start: Start) -> None:
    program = start("exec seq 1000000000", queue_lines=50)
    assert program._output is not None
    until(lambda: state_of(program) == "S" and program._output._is_full)  # type: ignore[union-attr]
    assert len(program._output._lines) <= 50
    assert [int(program.read_line(LONG_S)) for _ in range(50_000)] == list(range(1, 50_001))


def test_the_queue_is_limited_in_bytes_as_well(start: Start) -> None:
    line = "a" * 1000
    program = start(f"exec yes {line}", queue_bytes=10_500)
    assert program._output is not None
    until(lambda: state_of(program) == "S" and program._output._is_full)  # type: ignore[union-attr]
    assert len(program._output._lines) == 10
    for _ in range(1000):
        assert program.read_line(LONG_S) == line.encode()


def test_flood_on_errors_holds_nothing_up(start: Start) -> None:
    program = start("yes word | head -c 50000000 >&2; echo; echo last >&2; echo out; exec sleep 60")
    assert [program.read_line(LONG_S) for _ in range(2)] == [b"", b"out"]
    assert program.last_lines(3) == ["word", "word", "last"]
    assert len("".join(program.last_lines(10**6))) < 2**14


def test_floods_on_both(start: Start) -> None:
    program = start("yes err >&2 & exec yes out")
    for _ in range(10_000):
        assert program.read_line(LONG_S) == b"out"
    assert program.last_lines(2)[0] == "err"


def test_line_of_64_megabytes(start: Start) -> None:
    program = start(f"head -c {2**26} /dev/zero | tr '\\0' a; echo; echo after")
    line = program.read_line(LONG_S)
    assert len(line) == 2**26
    assert line.count(b"a") == 2**26
    assert program.read_line(LONG_S) == b"after"


def test_line_above_the_limit_is_one_error(start: Start) -> None:
    script = (
        "echo before; head -c 200000 /dev/zero; echo; printf 0123456789; echo ab; echo 0123456789"
    )
    for limit, expected in (
        (100_000, [b"0123456789ab", b"0123456789"]),
        (10, [None, b"0123456789"]),
    ):
        program = start(script, max_line_bytes=limit)
        assert program.read_line(LONG_S) == b"before"
        message = f"the script: a line of more than max_line_bytes={limit:,} was left out"
        for line in (None, *expected):
            if line is not None:
                assert program.read_line(LONG_S) == line
                continue
            with pytest.raises(LineTooLongError, match=message):
                program.read_line(LONG_S)
    endless = start("exec cat /dev/zero", max_line_bytes=10**6)
    with pytest.raises(LineTooLongError, match="max_line_bytes=1,000,000"):
        endless.read_line(LONG_S)
    assert endless.try_read_line(0.05) is None


# ---------------------------------------------------------------------- writing


def test_program_that_reads_nothing_does_not_block_for_ever(start_either_way: Start) -> None:
    program = start_either_way("exec sleep 60")
    with pytest.raises(
        WorkerTimeoutError, match=r"took only a part of 1,000,000 bytes within 0\.05 s; end it"
    ):
        program.write(bytes(10**6), timeout_s=0.05)
    assert program.alive
    with pytest.raises(ClosedError, match="has got a part of a message"):
        program.write(b"the next one")


def test_message_that_was_not_begun_may_be_repeated(start: Start) -> None:
    program = start("trap : USR1; echo; sleep 60 & wait; exec cat")
    program.read_line(LONG_S)
    program.write(bytes(2**16))
    with pytest.raises(
        WorkerTimeoutError, match=r"took nothing of 3 bytes within 0\.05 s; it does not"
    ):
        program.write(b"a\nb", timeout_s=0.05)
    os.kill(program.pid, signal.SIGUSR1)
    program.write(b"a\nb")
    assert program.read_line(LONG_S) == bytes(2**16) + b"a"


def test_death_ends_a_write(start: Start) -> None:
    program = start("sleep 0.2; exit 5")  # a program of it holds its input open
    for _ in range(2):
        with pytest.raises(WorkerDiedError, match="exited with code 5 before it took its input"):
            program.write(bytes(10**6))
    program = start("exec <&-; echo; exec sleep 60")
    program.read_line(LONG_S)
    with pytest.raises(
        WorkerDiedError, match="closed its end of the pipe, but runs on, before it took"
    ):
        program.write(b"word")


def test_end_ends_a_write_of_another_thread(start: Start) -> None:
    program = start("exec sleep 60")
    errors: list[Exception] = []

    def write() -> None:
        try:
            program.write(bytes(10**6))
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    until(lambda: program._input.torn)
    program.kill()
    thread.join(LONG_S)
    assert str(errors[0]) == "its input was closed while it was written to"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_does_not_hold_the_input_open(start: Start) -> None:
    program = start("exec cat")
    pid = os.fork()
    if pid == 0:
        threading.Event().wait(60)
    try:
        program.close_input()
        assert program.wait(LONG_S) == 0
        with pytest.raises(ClosedError, match="the script: written to after its input was closed"):
            program.write(b"word")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


# ---------------------------------------------------------------------- what it starts with


def test_only_listed_variables_are_passed(
    start_either_way: Start, monkeypatch: pytest.MonkeyPatch
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
    program = start_either_way(
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
    assert found["PARLLEL_WORKER"] == program._mark
    assert "NEVER_SET" not in found


def test_nothing_else_is_inherited(start: Start) -> None:
    program = start(
        "ls /proc/self/fd; exec grep --line-buffered -hE 'Sig(Ign|Blk)' /proc/self/status -"
    )
    numbers = {int(program.read_line(LONG_S)) for _ in range(5)}
    # The guard, whose number is out of the way of scripts, and the listing itself.
    assert numbers == {0, 1, 2, 3, 100}
    masks = [program.read_line(LONG_S).split(b"\t")[1] for _ in range(2)]
    assert masks == [b"0" * 16] * 2
    assert os.getsid(program.pid) == os.getpgid(program.pid) == program.pid


def test_program_that_cannot_be_started_is_an_error_at_once(
    start_either_way: Start, tmp_path: Path
) -> None:
    del start_either_way  # for its two ways alone
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
    with pytest.raises(ValueError, match="sh: most_lines: expected at least 1, got 0"):
        Program(["sh"], queue_lines=0)


def test_errors_go_to_a_file(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("of an earlier program\n")
    program = start("echo said >&2; echo; exec sleep 60", stderr=path)
    program.read_line(LONG_S)
    assert program.last_lines() == ["said"]
    program.kill()
    assert program.last_lines() == ["said"]
    assert path.read_text() == "of an earlier program\nsaid\n"
    start("true", stderr=tmp_path / "new.txt")
    assert (tmp_path / "new.txt").stat().st_mode & 0o777 == 0o600


def test_output_may_be_discarded(start: Start) -> None:
    program = start("head -c 10000000 /dev/zero; exit 3", lines=False)
    assert program.wait(LONG_S) == 3
    with pytest.raises(ValueError, match="the script: was started with lines=False"):
        program.read_line(LONG_S)


def test_use_after_the_end(start: Start) -> None:
    with start("echo word; exec cat") as program:
        pass
    program.close()
    for use in (lambda: program.write(b"word"), lambda: program.read_line(1.0)):
        with pytest.raises(ClosedError, match="the script: used after it was ended"):
            use()
    assert program.wait(0.0) == 0
    assert program.exit_text() == "exited with code 0"
    assert not program.alive
