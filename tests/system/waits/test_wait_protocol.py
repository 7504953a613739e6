"""Waits between real processes: nothing is lost, nothing comes out of order, whoever dies or starts how."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from start_methods import SPAWN_SOAKS
from wait_makers import KINDS, LONG_S, make_over, shared_lines

from parllel.system.processes.child import Child
from parllel.system.waits import Wait, make_wait
from parllel.system.waits.sleep_slots import SleepSlots

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

PROCESSES = 6
Lines = NDArray[np.int32]
Shared = tuple[Wait, Lines]


def payload_of(step: int) -> NDArray[np.int64]:
    return (np.arange(1, 15) * step) % 1_000_003


@contextmanager
def children(
    target: Any, arguments: list[tuple[Any, ...]], inherited: Any
) -> Iterator[list[Child]]:
    started: list[Child] = []
    try:
        for args in arguments:
            started.append(Child(target, args, inherited=inherited, start_method="fork"))
        yield started
    finally:
        for child in started:
            child.kill()


# ---------------------------------------------------------------------- two


def answer_pings(connection: Connection, steps: int, *, inherited: Shared) -> None:
    """Check what comes with each ping, and send it back changed."""
    wait, lines = inherited
    mismatches = 0
    for step in range(1, steps + 1):
        assert wait.wait(0, step - 1, LONG_S) == step
        mismatches += not np.array_equal(lines[0, 2:], payload_of(step))
        lines[1, 2:] = lines[0, 2:] + 1
        wait.post(1, step)
    connection.send_bytes(str(mismatches).encode())


@pytest.mark.parametrize("spin_us", [0.0, 50.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_ping_pong_keeps_step_and_payload(kind: str, spin_us: float) -> None:
    steps = 20_000 if spin_us else 5_000
    lines = shared_lines(2)
    wait = make_over(lines, kind, spin_us=spin_us)
    mismatches = 0
    with children(answer_pings, [(steps,)], (wait, lines)) as (child,):
        for step in range(1, steps + 1):
            lines[0, 2:] = payload_of(step)
            wait.post(0, step)
            assert wait.wait(1, step - 1, LONG_S) == step
            mismatches += not np.array_equal(lines[1, 2:], payload_of(step) + 1)
        assert child.receive(LONG_S, "counting") == b"0"
    assert mismatches == 0
    assert lines[:, 0].tolist() == [steps, steps]


# ---------------------------------------------------------------------- many


def pass_on(connection: Connection, number: int, rounds: int, *, inherited: Shared) -> None:
    """Add one to the token of the line before and hand it to the next."""
    wait, lines = inherited
    for turn in range(1, rounds + 1):
        assert wait.wait(number - 1, turn - 1, LONG_S) == turn
        lines[number, 2] = lines[number - 1, 2] + 1
        wait.post(number, turn)


@pytest.mark.parametrize("kind", KINDS)
def test_token_goes_round_a_ring_larger_than_the_machine(kind: str) -> None:
    rounds = 2000
    lines = shared_lines(PROCESSES)
    wait = make_over(lines, kind, PROCESSES, spin_us=5.0)
    arguments = [(number, rounds) for number in range(1, PROCESSES)]
    with children(pass_on, arguments, (wait, lines)):
        for turn in range(1, rounds + 1):
            lines[0, 2] = lines[PROCESSES - 1, 2] + 1
            wait.post(0, turn)
            assert wait.wait(PROCESSES - 1, turn - 1, LONG_S) == turn
    assert lines[PROCESSES - 1, 2] == rounds * PROCESSES


def work_per_round(connection: Connection, number: int, rounds: int, *, inherited: Shared) -> None:
    wait, lines = inherited
    total = 0
    for turn in range(1, rounds + 1):
        assert wait.wait(0, turn - 1, LONG_S) == turn
        total += int(lines[0, 2])
        lines[number, 2] = int(lines[0, 2]) * number
        wait.post(number, turn)
    connection.send_bytes(str(total).encode())


@pytest.mark.parametrize("kind", KINDS)
def test_one_word_starts_many_and_all_answer_each_round(kind: str) -> None:
    rounds = 2000
    lines = shared_lines(PROCESSES)
    wait = make_over(lines, kind, PROCESSES, spin_us=5.0)
    arguments = [(number, rounds) for number in range(1, PROCESSES)]
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 1000, rounds).tolist()
    with children(work_per_round, arguments, (wait, lines)) as started:
        for turn, value in enumerate(drawn, 1):
            lines[0, 2] = value
            wait.post(0, turn)
            for number in range(1, PROCESSES):
                assert wait.wait(number, turn - 1, LONG_S) == turn
            assert lines[1:, 2].tolist() == [value * number for number in range(1, PROCESSES)]
        totals = [int(child.receive(LONG_S, "adding up")) for child in started]
    assert totals == [sum(drawn)] * len(started)


# ---------------------------------------------------------------------- death


def answer_once_and_die(connection: Connection, *, inherited: Shared) -> None:
    wait, _ = inherited
    wait.post(1, wait.wait(0, 0, LONG_S))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_peer_costs_no_more_than_the_time_out(kind: str) -> None:
    lines = shared_lines(2)
    wait = make_over(lines, kind)
    with children(answer_once_and_die, [()], (wait, lines)):
        wait.post(0, 1)
        assert wait.wait(1, 0, LONG_S) == 1
        wait.post(0, 2)
        began = time.monotonic()
        assert wait.wait(1, 1, 0.3) == 1
        assert 0.3 <= time.monotonic() - began < LONG_S / 2


def sleep_on(connection: Connection, seen: int, *, inherited: Shared) -> None:
    wait, _ = inherited
    connection.send_bytes(b"ready")
    connection.send_bytes(str(wait.wait(0, seen, LONG_S)).encode())


@pytest.mark.parametrize("kind", KINDS)
def test_sleeper_killed_in_its_sleep_does_not_keep_others_from_waking(kind: str) -> None:
    lines = shared_lines(1)
    wait = make_over(lines, kind, n_waiters=4, spin_us=0.0)
    with children(sleep_on, [(0,), (0,), (0,)], (wait, lines)) as (victim, *others):
        for child in (victim, *others):
            assert child.receive(LONG_S, "at start") == b"ready"
        time.sleep(0.05)
        victim.kill()
        wait.post(0, 7)
        for child in others:
            assert child.receive(LONG_S, "waiting") == b"7"
    for value in range(8, 100):
        wait.post(0, value)
    assert wait.load(0) == 99


# ---------------------------------------------------------------------- starts


def map_lines(path: str, n_lines: int) -> Lines:
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 64 * n_lines)
    return np.frombuffer(mapped, np.int32).reshape(n_lines, 16)


def add_one(connection: Connection, kind: str, path: str, *, inherited: SleepSlots) -> None:
    wait = make_wait(map_lines(path, 2), kind, sleep_slots=inherited)
    for step in range(1, 101):
        value = wait.wait(0, step - 1, LONG_S)
        wait.post(1, value)
    connection.send_bytes(str(value).encode())


@pytest.mark.parametrize("method", SPAWN_SOAKS)
@pytest.mark.parametrize("kind", KINDS)
def test_children_of_any_start_method_wait(kind: str, method: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(bytes(128))
    sleep_slots = SleepSlots(2, 2)
    wait = make_wait(map_lines(str(path), 2), kind, sleep_slots=sleep_slots)
    child = Child(add_one, (kind, str(path)), inherited=sleep_slots, start_method=method)
    try:
        for step in range(1, 101):
            wait.post(0, step)
            assert wait.wait(1, step - 1, LONG_S) == step
        assert child.receive(LONG_S, "adding") == b"100"
    finally:
        child.kill()
