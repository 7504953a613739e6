"""Which wait suits the machine, and what all of them refuse."""

from __future__ import annotations

import os
import pickle
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from python_code import output_of
from wait_makers import KINDS, LONG_S, make, shared_lines

from parllel.system.processes.child import Child
from parllel.system.waits import Wait, available_kinds, make_wait
from parllel.system.waits.compiled_wait import CompiledWait
from parllel.system.waits.semaphore_wait import SemaphoreWait
from parllel.system.waits.sleep_slots import SleepSlots

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(params=KINDS)
def wait(request: pytest.FixtureRequest) -> Wait:
    return make(request.param)


def test_best_kind_is_the_default_and_each_can_be_asked_for() -> None:
    lines = shared_lines(1)
    classes = {"compiled": CompiledWait, "semaphore": SemaphoreWait}
    assert KINDS[-1] == "semaphore"
    sleep_slots = SleepSlots(1, 1)
    assert make_wait(lines, sleep_slots=sleep_slots).kind == KINDS[0]
    for kind in KINDS:
        assert type(make_wait(lines, kind, sleep_slots=sleep_slots)) is classes[kind]
    with pytest.raises(ValueError, match=r"kind: expected one of \[.*'semaphore'\], got 'pipe'"):
        make_wait(lines, "pipe")
    with pytest.raises(
        ValueError, match="sleep_slots: expected SleepSlots that all processes share, got None"
    ):
        make_wait(lines, "semaphore")


def test_kinds_of_another_machine_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert available_kinds() == ["semaphore"]
    with pytest.raises(ValueError, match=r"CompiledWait: expected .* got linux on riscv64"):
        CompiledWait(shared_lines(1))
    wait = make("semaphore")  # with the fences that such a machine needs
    wait.post(0, 4)
    assert wait.wait(0, 3, LONG_S) == wait.load(0) == 4


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([[0] * 16], r"lines: expected an int32 array \[n, 16\], got list"),
        (np.zeros((2, 8), np.int32), r"lines: expected int32 \[n, 16\], got int32 \[2, 8\]"),
        (np.zeros((2, 16), np.int64), r"lines: expected int32 \[n, 16\], got int64 \[2, 16\]"),
        (shared_lines(4)[::2], r"lines: expected a C-contiguous array"),
        (np.frombuffer(bytes(64), np.int32).reshape(1, 16), r"array that can be written"),
        (shared_lines(2).ravel()[4:20].reshape(1, 16), r"aligned to 64 bytes, got an address 16"),
    ],
)
def test_unsuitable_lines_are_refused(lines: NDArray[np.int32], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make_wait(lines)


def test_other_unsuitable_arguments_are_refused() -> None:
    for spin_us in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="spin_us: expected a finite number of at least 0"):
            make_wait(shared_lines(1), spin_us=spin_us)
    with pytest.raises(
        ValueError, match="sleep_slots: expected at least 1 line and 1 waiter, got 1 and 0"
    ):
        SleepSlots(1, 0)
    with pytest.raises(
        ValueError, match="sleep_slots: expected slots for 1 lines, got slots for 3"
    ):
        SemaphoreWait(shared_lines(1), SleepSlots(3, 1))


def test_one_waiter_more_than_sleep_slots_is_refused() -> None:
    wait = SemaphoreWait(shared_lines(1), SleepSlots(1, 1))
    assert wait.wait(0, 0, 0.01) == 0  # takes the only one

    def wait_too(connection: Connection, *, inherited: Wait) -> None:
        inherited.wait(0, 0, 0.01)

    child = Child(wait_too, inherited=wait, start_method="fork")
    with pytest.raises(
        RuntimeError, match="sleep_slots: expected at most 1 waiting processes, got one"
    ):
        child.receive(LONG_S, "waiting")
    child.end()


def test_wait_is_not_copied_by_pickle(wait: Wait) -> None:
    with pytest.raises(TypeError, match=rf"cannot be pickled.*make_wait\(lines, '{wait.kind}'\)"):
        pickle.dumps(wait)


def test_import_does_not_load_numba() -> None:
    output_of("import parllel.system.waits, sys; sys.exit('numba' in sys.modules)")


def test_semaphores_whose_names_are_forgotten_wake_on() -> None:
    """The names of semaphores are files in /dev/shm, which would stay when this process is killed."""
    lines = shared_lines(2)
    sleep_slots = SleepSlots(2, 2)
    wait = SemaphoreWait(lines, sleep_slots, spin_us=0.0)
    names = [Path(f"/dev/shm/sem.{lock._semlock.name[1:]}") for lock in sleep_slots._semaphores]  # type: ignore[attr-defined]
    assert [name.exists() for name in names] == [True, True]

    def wait_and_post(connection: Connection, *, inherited: Wait) -> None:
        inherited.post(1, inherited.wait(0, 0, LONG_S) + 1)

    child = Child(wait_and_post, inherited=wait, start_method="fork")
    for _ in range(2):  # twice is once
        wait.settle()
        assert [name.exists() for name in names] == [False, False]
    wait.post(0, 4)
    assert wait.wait(1, 0, LONG_S) == 5
    child.end()


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_cage_with_semaphores_has_no_files_once_it_runs(method: str) -> None:
    from parllel.cages import SynchronizedProcessCage
    from parllel.testing import CountingEnv

    with SynchronizedProcessCage(
        [CountingEnv] * 2, n_workers=2, wait="semaphore", start_method=method
    ) as cage:
        sleep_slots = cage._pool.control.wait._sleep_slots  # type: ignore[attr-defined]
        made = [
            f"sem.{lock._semlock.name[1:]}"
            for lock in (sleep_slots._taking, *sleep_slots._semaphores)
        ]
        assert len(made) == 4
        cage.spaces  # noqa: B018
        assert not set(made) & set(os.listdir("/dev/shm"))
