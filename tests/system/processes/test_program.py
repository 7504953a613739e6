"""A foreign program is spoken to in lines, whatever it does with its pipes."""

from __future__ import annotations

import os
import signal
import threading
import tracemalloc

import pytest
from starting import LONG_S, Run
from waiting import until

from parllel.errors import (
    ClosedError,
    HalfLineError,
    LineTooLongError,
    WorkerDiedError,
    WorkerTimeoutError,
)
from parllel.system.processes import Program
from parllel.system.processes.line_reader import LineReader
from parllel.system.processes.process_table import process_entry


def state_of(program: Program) -> str:
    entry = process_entry(program.pid)
    return "" if entry is None else entry.state


# ---------------------------------------------------------------------- lines, time-outs and deaths


def test_lines_go_both_ways(run_either_way: Run) -> None:
    program = run_either_way("cat")
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


def test_silence_is_no_death(run: Run) -> None:
    program = run("read line; echo $line; exec sleep 60")
    assert program.try_read_line() is None
    with pytest.raises(
        WorkerTimeoutError, match=r"the script: process \d+ wrote no line within 0\.01 s"
    ):
        program.read_line(0.01)
    assert program.alive
    program.write(b"at last\n")
    assert program.read_line(LONG_S) == b"at last"


def test_lines_before_a_death_come_before_it(run_either_way: Run) -> None:
    program = run_either_way("seq 100; echo the reason >&2; exit 7")
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


def test_half_a_line_at_the_end_is_none(run_either_way: Run) -> None:
    program = run_either_way("printf 'whole\\nhalf'; kill -9 $$")
    assert program.read_line(LONG_S) == b"whole"
    for _ in range(2):
        with pytest.raises(
            HalfLineError,
            match=r"was killed by SIGKILL in a line of which 4 bytes came; it wrote nothing",
        ) as raised:
            program.try_read_line(LONG_S)
        assert raised.value.half_line == b"half"


@pytest.mark.parametrize("holder", ["sleep 60", "while :; do echo more; done"])
def test_death_is_noticed_while_another_process_holds_the_output(run: Run, holder: str) -> None:
    program = run(f"echo first; ({holder}) & exit 4")
    assert program.read_line(LONG_S) == b"first"
    lines = iter(lambda: program.read_line(LONG_S), b"the last")
    with pytest.raises(WorkerDiedError, match="exited with code 4"):
        assert set(lines) == {b"more"}


@pytest.mark.usefixtures("hasty")
def test_program_that_closes_its_output_is_of_no_use(run: Run) -> None:
    program = run("echo first; exec >&-; exec sleep 60")
    assert program.read_line(LONG_S) == b"first"
    with pytest.raises(WorkerDiedError, match="closed its end of the pipe, but runs on, while"):
        program.read_line(LONG_S)
    assert program.alive


# ---------------------------------------------------------------------- much at once


def test_flood_on_output_waits_until_it_is_read(run: Run) -> None:
    program = run("exec seq 1000000000")
    until(lambda: state_of(program) == "S")
    assert [int(program.read_line(LONG_S)) for _ in range(50_000)] == list(range(1, 50_001))
    assert program.wait(0.05) is None  # which reads meanwhile, up to a limit
    until(lambda: state_of(program) == "S")
    assert [int(program.read_line(LONG_S)) for _ in range(50_000)] == list(range(50_001, 100_001))


def test_what_is_written_while_this_waits_for_the_end_is_kept(run_either_way: Run) -> None:
    program = run_either_way("seq 1000000")  # more than a pipe holds
    assert program.wait(LONG_S) == 0
    assert [int(program.read_line(LONG_S)) for _ in range(1_000_000)][-1] == 1_000_000


def test_a_program_that_answers_while_it_is_written_to(run_either_way: Run) -> None:
    program = run_either_way("exec cat")  # reads nothing while its answer is not read
    lines = b"\n".join([b"x" * 1000] * 10_000)
    program.write(lines + b"\n", LONG_S)
    assert b"\n".join(program.read_line(LONG_S) for _ in range(10_000)) == lines


def test_flood_on_errors_holds_nothing_up(run: Run) -> None:
    program = run("yes word | head -c 50000000 >&2; echo; echo last >&2; echo out; exec sleep 60")
    assert [program.read_line(LONG_S) for _ in range(2)] == [b"", b"out"]
    assert program.last_lines(3) == ["word", "word", "last"]
    assert len("".join(program.last_lines(10**6))) < 2**14


def test_floods_on_both(run: Run) -> None:
    program = run("yes err >&2 & exec yes out")
    for _ in range(10_000):
        assert program.read_line(LONG_S) == b"out"
    until(lambda: program.last_lines(2)[:1] == ["err"])


def test_line_of_64_megabytes(run: Run) -> None:
    program = run(f"head -c {2**26} /dev/zero | tr '\\0' a; echo; echo after")
    line = program.read_line(LONG_S)
    assert len(line) == 2**26
    assert line.count(b"a") == 2**26
    assert program.read_line(LONG_S) == b"after"


def test_line_above_the_limit_is_one_error(run: Run) -> None:
    script = (
        "echo before; head -c 200000 /dev/zero; echo; printf 0123456789; echo ab; echo 0123456789"
    )
    for limit, expected in (
        (100_000, [b"0123456789ab", b"0123456789"]),
        (10, [None, b"0123456789"]),
    ):
        program = run(script, max_line_bytes=limit)
        assert program.read_line(LONG_S) == b"before"
        message = f"the script: a line of more than max_line_bytes={limit:,} was left out"
        for line in (None, *expected):
            if line is not None:
                assert program.read_line(LONG_S) == line
                continue
            with pytest.raises(LineTooLongError, match=message):
                program.read_line(LONG_S)
    endless = run("exec cat /dev/zero", max_line_bytes=10**6)
    with pytest.raises(LineTooLongError, match="max_line_bytes=1,000,000"):
        endless.read_line(LONG_S)
    assert endless.try_read_line(0.05) is None


def test_output_is_closed_if_it_cannot_be_read() -> None:
    output, other = os.pipe()
    os.close(other)
    with pytest.raises(OSError, match="Bad file descriptor"):
        LineReader(output, other, name="it", max_line_bytes=1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(output)


def test_line_in_many_pieces_takes_no_more_memory_than_in_one() -> None:
    output, other = os.pipe()
    reader = LineReader(output, -1, name="it", max_line_bytes=10**6)
    tracemalloc.start()
    try:
        for _ in range(20_000):
            os.write(other, b"ab")
            assert reader.next(0.0) is None
        assert tracemalloc.get_traced_memory()[0] < 3 * 40_000
    finally:
        tracemalloc.stop()
        os.write(other, b"\n")
        os.close(other)
    assert reader.next(LONG_S) == b"ab" * 20_000
    reader.close(LONG_S)


# ---------------------------------------------------------------------- writing


def test_program_that_reads_nothing_does_not_block_for_ever(run_either_way: Run) -> None:
    program = run_either_way("exec sleep 60")
    with pytest.raises(
        WorkerTimeoutError, match=r"accepted only a part of 1,000,000 bytes within 0\.05 s; end it"
    ):
        program.write(bytes(10**6), timeout_s=0.05)
    assert program.alive
    with pytest.raises(ClosedError, match="has received only part of a message"):
        program.write(b"the next one")


def test_message_that_was_not_begun_may_be_repeated(run: Run) -> None:
    program = run('trap go=1 USR1; echo; until [ "$go" ]; do sleep 0.05; done; exec cat')
    program.read_line(LONG_S)
    program.write(bytes(2**16))
    with pytest.raises(
        WorkerTimeoutError, match=r"accepted nothing of 3 bytes within 0\.05 s; it does not"
    ):
        program.write(b"a\nb", timeout_s=0.05)
    os.kill(program.pid, signal.SIGUSR1)
    program.write(b"a\nb")
    assert program.read_line(LONG_S) == bytes(2**16) + b"a"


def test_death_ends_a_write(run: Run) -> None:
    program = run("sleep 0.2; exit 5")  # a program of it holds its input open
    for _ in range(2):
        with pytest.raises(WorkerDiedError, match="exited with code 5 before it took its input"):
            program.write(bytes(10**6))


@pytest.mark.usefixtures("hasty")
def test_closed_input_ends_a_write(run: Run) -> None:
    program = run("exec <&-; echo; exec sleep 60")
    program.read_line(LONG_S)
    with pytest.raises(
        WorkerDiedError, match="closed its end of the pipe, but runs on, before it took"
    ):
        program.write(b"word")


def test_end_ends_a_write_of_another_thread(run: Run) -> None:
    program = run("exec sleep 60")
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
    assert str(errors[0]) == "the script: its input was closed while it was written to"


def test_threads_write_one_after_the_other(run: Run) -> None:
    program = run('trap go=1 USR1; echo; until [ "$go" ]; do sleep 0.05; done; exec wc -c')
    program.read_line(LONG_S)
    errors: list[Exception] = []

    def write(length: int) -> None:
        try:
            program.write(bytes(length), LONG_S)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(length,)) for length in (2**20, 5, 0)]
    for thread in threads:
        thread.start()
        until(lambda: program._input.torn)
    with pytest.raises(WorkerTimeoutError, match="accepted nothing of 3 bytes within 0 s"):
        program.write(b"one", timeout_s=0.0)
    os.kill(program.pid, signal.SIGUSR1)
    for thread in threads:
        thread.join(LONG_S)
    program.close_input()
    assert program.read_line(LONG_S) == str(2**20 + 5).encode()
    assert errors == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_does_not_hold_the_input_open(run: Run) -> None:
    program = run("exec cat")
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
