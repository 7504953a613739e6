from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "served_worker.py"
RESET, STEP, STOP = {"cmd": "reset", "seed": 5}, {"cmd": "step"}, {"cmd": "stop"}
CLOSED = ["agent closed", "environment closed"]


@contextmanager
def started(*ways, **options):
    """Start a worker; end it in any case."""
    pipe = subprocess.PIPE
    command = [sys.executable, str(WORKER), *ways]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, **options) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()


def send(process, *commands):
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in commands]
    process.stdin.write(b"".join(line + b"\n" for line in lines))
    process.stdin.flush()


def read(process):
    return json.loads(process.stdout.readline())


def said_by(commands, *ways, status=0):
    """Return the replies to commands, and the log."""
    lines = b"".join(json.dumps(command).encode() + b"\n" for command in commands)
    done = subprocess.run(
        [sys.executable, str(WORKER), *ways], input=lines, capture_output=True, timeout=50
    )
    assert done.returncode == status, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


def test_what_libraries_print_goes_to_the_log():
    replies, log = said_by([RESET, STEP, STEP, STOP], "prints")
    assert [reply["type"] for reply in replies] == ["ready", "step", "step", "stopped"]
    for where in ("while loading", "in decide"):
        for printer in ("python", "libc", "descriptor", "child"):
            assert f"{printer} {where}\n" in log
        # Nothing of the commands reaches those who read standard input.
        assert f"read '' {where}" in log
    assert "cmd" not in log


def test_the_end_of_the_input_ends_a_worker():
    replies, log = said_by([RESET, STEP])
    assert [reply["type"] for reply in replies] == ["ready", "step"]
    assert sorted(log.splitlines()) == CLOSED


def test_a_last_line_needs_no_newline_and_lines_may_come_in_parts():
    with started() as process:
        for part in (b'{"cmd":"re', b'set","seed":5}\n{"cmd"', b':"step"}\n{"cmd":"stop"}'):
            os.write(process.stdin.fileno(), part)
            time.sleep(0.05)  # so that they are read apart; together they mean the same
        process.stdin.close()
        assert [json.loads(line)["type"] for line in process.stdout] == ["ready", "step", "stopped"]
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (
            "cannot load",
            "Failed to load policy: FileNotFoundError: [Errno 2] No such file or directory: 'runs/none'",
        ),
        ("cannot bind", "Failed to load policy: FileNotFoundError: runs/none"),
        ("no environment", "Failed to load environment: LookupError: no such world"),
        ("exits", "Failed to load environment: SystemExit: the simulator has no licence"),
        (
            "no agent",
            "Failed to load policy: TypeError: agent: expected a WorkerAgent, a Policy or a function of an "
            "observation, got 3",
        ),
    ],
)
def test_what_cannot_be_loaded_is_said_at_once(way, message):
    # Without a command: an operator that cannot start does not wait to be asked.
    with started(way) as process:
        assert read(process) == {"type": "error", "message": message}
        assert process.wait(20) == 1
        assert process.stdout.read() == b""


def test_sigterm_closes_environment_and_agent():
    with started("sleeps") as process:
        send(process, RESET, STEP)
        assert read(process)["type"] == "ready"
        assert process.stderr.readline() == b"asleep\n"
        process.terminate()
        assert process.wait(20) == 128 + signal.SIGTERM
        assert sorted(process.stderr.read().decode().splitlines()) == CLOSED


def test_sigterm_ends_a_worker_that_waits_for_commands():
    with started() as process:
        send(process, RESET)
        read(process)
        process.terminate()
        assert process.wait(20) == 128 + signal.SIGTERM


def test_an_agent_that_catches_everything_delays_sigterm_by_a_step():
    replies, log = said_by([RESET, STEP, STEP], "catches", status=128 + signal.SIGTERM)
    assert [reply["type"] for reply in replies] == ["ready", "step"]
    assert sorted(log.splitlines()) == ["agent closed", "caught", "environment closed"]


def test_what_cannot_be_closed_ends_all_the_same():
    replies, log = said_by([RESET, STOP], "cannot close")
    assert replies[-1] == {"type": "stopped"}
    assert "OSError: stuck" in log
    assert "environment closed" in log


def test_forks_do_not_hold_the_replies_open():
    with started("forks") as process:
        send(process, RESET, STEP, STOP)
        try:
            # Until the end of the output, which a forked child with a copy would put off.
            assert [json.loads(line)["type"] for line in process.stdout] == [
                "ready",
                "step",
                "stopped",
            ]
            assert process.wait(20) == 0
        finally:
            found = re.search(rb"forked (\d+)", os.read(process.stderr.fileno(), 10_000))
            os.kill(int(found[1]), signal.SIGKILL)


def test_a_driver_that_is_gone_ends_a_worker():
    with started() as process:
        send(process, RESET)
        read(process)
        process.stdout.close()
        send(process, STEP, STEP)
        assert process.wait(20) == 0
        assert sorted(process.stderr.read().decode().splitlines()) == CLOSED


def test_lines_of_many_megabytes_pass_in_both_directions():
    with started() as process:
        send(process, {**RESET, "unknown": "x" * 20_000_000})
        assert read(process)["type"] == "ready"
        send(process, {**STEP, "frame": "rgb"}, {**STEP, "frame": "png"})
        lists = read(process)["render_payload"]["rgb"]
        assert (len(lists), len(lists[0]), len(lists[0][0])) == (1000, 1000, 3)
        # Noise, which PNG makes no smaller.
        assert len(base64.b64decode(read(process)["render_payload"]["data"])) > 2_900_000
        send(process, STOP)
        assert read(process) == {"type": "stopped"}


def test_output_that_does_not_block_is_waited_for():
    inner, outer = os.pipe()
    os.set_blocking(outer, False)
    command = [sys.executable, str(WORKER)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=outer, stderr=subprocess.DEVNULL
    ) as process:
        os.close(outer)
        send(process, RESET, {**STEP, "frame": "rgb"}, STOP)
        with os.fdopen(inner) as replies:
            first = replies.readline()
            time.sleep(0.2)  # the pipe is full now
            found = [json.loads(line) for line in (first, *replies)]
        assert [reply["type"] for reply in found] == ["ready", "step", "stopped"]
        assert len(found[1]["render_payload"]["rgb"]) == 1000
        assert process.wait(20) == 0
