from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from asked_runtime import Deciding, ask, runtime_of
from fuzzed_lines import fuzzed_lines

from parllel.distributed.operators.protocol.message_lines import read_reply

WORKER = Path(__file__).parent / "served_worker.py"
MAY_GROW = 8 * 2**20  # bytes
ANSWERS = {
    *("ready", "step", "episode_end", "error", "pong", "agent_ready", "action_selected"),
}


def float_of(digits):
    if not math.isfinite(float(digits)):
        raise ValueError(digits)
    return float(digits)


def check(line, replies):
    """Check that a line was answered by one reply, or by a step and the end of its episode."""
    kinds = [reply["type"] for reply in replies]
    assert len(kinds) == 1 or kinds == ["step", "episode_end"], (line, kinds)
    assert set(kinds) <= ANSWERS
    # What is ignored need not be well-formed in all its letters.
    text = line.decode("utf-8", "replace")
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        assert kinds == ["error"], line
    try:
        command = json.loads(line, parse_constant=float_of, parse_float=float_of)
        json.dumps(command, ensure_ascii=False).encode()  # no halves of surrogate pairs
    except (ValueError, RecursionError):
        return kinds
    number = command.get("id") if isinstance(command, dict) else None
    if type(number) in (int, str):
        assert {reply.get("id") for reply in replies} == {number}, line
    return kinds


@pytest.mark.parametrize("seed", [0, 1])
def test_every_line_is_answered_once_and_nothing_breaks(seed, capsys):
    runtime, _, _ = runtime_of(agent=Deciding())
    kinds = Counter()
    for line in fuzzed_lines(5000, seed):
        answer = runtime.answer(line)
        assert answer.endswith(b"\n")
        kinds.update(check(line, [read_reply(reply) for reply in answer.splitlines()]))
    assert not runtime.ended
    # All that can be said was said: the lines are not all refused for one reason.
    assert set(kinds) == ANSWERS
    assert kinds["error"] > 1000
    capsys.readouterr()
    ask(runtime, {"cmd": "reset", "seed": 1})
    assert [ask(runtime, {"cmd": "step"})[0]["episode_reward"] for _ in range(3)] == [1, 1.5, 3.5]


def serve_lines(log_path, n, seed):
    """Check a worker's answers to lines; return its memory after a tenth of them, and after all."""
    lines = list(fuzzed_lines(n, seed))
    resident = []
    with (
        open(log_path, "wb") as log,
        subprocess.Popen(
            [sys.executable, str(WORKER), "small"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):

        def write():
            with suppress(BrokenPipeError):  # of a worker that has died, as is found below
                for i, line in enumerate(lines):
                    # The answer to the ping says where those to the line end.
                    process.stdin.write(b'%b\n{"cmd":"ping","id":"end %d"}\n' % (line, i))
                process.stdin.flush()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for i, line in enumerate(lines):
                replies = []
                while not replies or replies[-1].get("id") != f"end {i}":
                    replies.append(read_reply(process.stdout.readline()))
                check(line, replies[:-1])
                if i in (n // 10, n - 1):
                    resident.append(psutil.Process(process.pid).memory_info().rss)
            process.stdin.write(b'{"cmd":"stop"}\n')
            process.stdin.flush()
            assert read_reply(process.stdout.readline())["type"] == "stopped"
            assert process.wait(30) == 0
        finally:
            process.kill()
            thread.join()
    return resident


def test_a_served_worker_answers_every_line_once(tmp_path):
    serve_lines(tmp_path / "log", 1000, 2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_served_worker_answers_for_hours_and_does_not_grow(tmp_path):
    """PARLLEL_SOAK_LINES (200,000) says how many lines there are."""
    n = int(os.environ.get("PARLLEL_SOAK_LINES", 200_000))
    before, after = serve_lines(tmp_path / "log", n, 3)
    assert after - before < MAY_GROW
