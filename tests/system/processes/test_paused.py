"""A pause of the whole machine, or of a container, does not count towards time-outs."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parllel import BatchSpec
from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import ProcessCage, SynchronizedProcessCage
from parllel.system.processes.child import Child
from parllel.system.processes.pipe_end import PipeEnd
from parllel.system.processes.process_table import process_entry
from parllel.system.waits import Wait, available_kinds, make_wait
from parllel.system.waits.sleep_slots import SleepSlots
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import run
from parllel_patterns import allocate_samples

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

LONG_S = 30.0
TIMEOUT_S = 0.8
PAUSE_S = 0.9


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.kill()


def pause(*pids: int) -> None:
    """Stop processes for longer than their time-outs, and wait until all have gone on."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    for pid in pids:
        while (entry := process_entry(pid)) is not None and entry.state == "T":
            time.sleep(0.001)


def wait_for_word(connection: Connection, *, inherited: Wait) -> None:
    connection.send_bytes(b"ready")
    connection.send_bytes(str(inherited.wait(0, 0, TIMEOUT_S)).encode())


def wait_for_message(connection: Connection) -> None:
    connection.send_bytes(b"ready")
    connection.send_bytes(PipeEnd(connection).read(TIMEOUT_S))


def wait_for_room(connection: Connection) -> None:
    connection.send_bytes(b"ready")
    PipeEnd(connection).write(bytes(1_000_000), TIMEOUT_S)


def test_waits_outlast_a_pause_that_is_longer(children: list[Child]) -> None:
    waits = []
    for kind in available_kinds():
        lines = np.frombuffer(mmap.mmap(-1, 64), np.int32).reshape(1, 16)
        sleep_slots = SleepSlots(1, 2) if kind == "semaphore" else None
        waits.append(make_wait(lines, kind, sleep_slots=sleep_slots))
        children.append(
            Child(wait_for_word, inherited=waits[-1], start_method="fork", name=f"{kind} wait")
        )
    reader = Child(wait_for_message, start_method="fork", name="reader")
    writer = Child(wait_for_room, start_method="fork", name="writer")
    children += [reader, writer]
    for child in children:
        assert child.receive(LONG_S, "at start") == b"ready"
    pause(*(child.pid for child in children))
    for wait in waits:
        wait.post(0, 7)
    reader.send_bytes(b"7")
    answers = [child.receive(LONG_S, "waiting") for child in children]
    assert answers == [b"7"] * (len(waits) + 1) + [bytes(1_000_000)]


class WaitingEnv(CountingEnv):
    """Steps when there is a file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def step(self, action: Any) -> Any:
        while not self.file.exists():
            time.sleep(0.001)
        return super().step(action)


def step_a_cage(connection: Connection, kind: str, file: Path) -> None:
    """Be the main process of a cage, with one worker."""
    if kind == "process":
        cage: Any = ProcessCage(lambda: WaitingEnv(file), timeout_s=TIMEOUT_S, start_method="fork")
        pids = [cage.pid]
    else:
        cage = SynchronizedProcessCage(
            [lambda: WaitingEnv(file)], n_workers=1, timeout_s=TIMEOUT_S, start_method="fork"
        )
        pids = cage.pids
    handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=1))
    with cage:
        cage.set_samples_buffer(allocate_samples([cage], BatchSpec(1, 1), handler), slice(0, 1))
        run(cage, "start_reset")
        cage.start_row(0)
        connection.send_bytes(",".join(map(str, pids)).encode())
        cage.finish_row()
        connection.send_bytes(b"stepped")


def test_cages_outlast_a_pause_that_is_longer(children: list[Child], tmp_path: Path) -> None:
    pids = []
    for kind in ("process", "synchronized"):
        child = Child(step_a_cage, (kind, tmp_path / "go"), start_method="fork", name=kind)
        children.append(child)
    for child in children:
        pids += [child.pid, *map(int, child.receive(LONG_S, "at start").split(b","))]
    pause(*pids)
    (tmp_path / "go").touch()
    assert [child.receive(LONG_S, "stepping") for child in children] == [b"stepped"] * 2
