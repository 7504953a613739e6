"""What happens to a SynchronizedProcessCage when an environment or a worker fails."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from cage_makers import synchronized
from start_methods import SENT_SPAWN_SOAKS

from parllel.cages import SynchronizedProcessCage
from parllel.errors import WorkerTimeoutError
from parllel.testing import FaultyEnv
from parllel.testing.cages.cage_faults_contract import (
    FAULTS,
    WITHIN_S,
    CageFaultsContract,
    enter,
    set_timeout,
    wait_until_gone,
    within,
)
from parllel.testing.cages.cage_hooks import notes_of, run, run_groups
from parllel.testing.cages.cage_kinds import MakesSynchronizedCage
from parllel.testing.faulty_envs import PHASES, DummyFaultError

TIMEOUT_S = 0.3
N = 4
NEVER = 10**9


def make(
    phase: str = "step", fault: str = "raise", *, number: int = 1, column: int = 2, **options: Any
) -> SynchronizedProcessCage:
    """Return a cage over two workers of four environments, from number 4 on; that of `column` fails."""
    never = partial(FaultyEnv, "step", number=NEVER, lengths=9)
    factories = [never] * N
    factories[column] = partial(FaultyEnv, phase, fault, number=number, lengths=9)
    return synchronized(factories, index=4, **options)


@pytest.mark.few(22)
class TestFaults(MakesSynchronizedCage, CageFaultsContract):
    pass


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.few(5)
def test_faults_beside_the_share_of_main(fault: str) -> None:
    faults = TestFaults()
    faults.settings = {"n_workers": 2, "participate": True}
    faults.test_faults_of_an_environment(fault, "step")


@pytest.mark.parametrize("start_method", SENT_SPAWN_SOAKS)
@pytest.mark.parametrize(
    ("fault", "phase"),
    [
        ("exit", "constructor"),
        ("raise", "step"),
        ("stop", "step"),
        ("hang_in_c", "reset"),
        ("kill", "attribute"),
        ("system_exit", "close"),
    ],
)
def test_faults_under_other_start_methods(fault: str, phase: str, start_method: str) -> None:
    faults = TestFaults()
    faults.start_method, faults.wait = start_method, "semaphore"
    faults.test_faults_of_an_environment(fault, phase)


@pytest.mark.parametrize("fault", ["raise", "kill", "stop"])
def test_faults_under_the_other_wait(fault: str) -> None:
    faults = TestFaults()
    faults.wait = "semaphore"
    faults.test_faults_of_an_environment(fault, "step")


@pytest.mark.parametrize("phase", PHASES)
def test_what_the_main_process_has_fails(phase: str) -> None:
    options = {"n_workers": 2, "participate": True, "n_main": 1, "column": N - 1}
    with pytest.raises(DummyFaultError, match=f"{phase} number 1 failed") as caught:
        enter_in_main(phase, options)
    said = notes_of(caught.value)
    assert "in environment 7" in said or phase in ("attribute", "close")
    assert "worker" not in said


def enter_in_main(phase: str, options: Any) -> None:
    cage = make(phase, **options)
    pids = cage.pids
    with cage:
        TestFaults().prepare(cage, phase)
        try:
            enter(cage, phase)
        except DummyFaultError:
            if phase == "attribute":
                assert cage.gravity == [9.8] * N
            else:
                TestFaults().assert_all_gone(cage, pids)
            raise


def test_decorrelation_that_fails_ends_the_cage() -> None:
    for column in (2, N - 1):  # of a worker, of main
        cage = make(number=3, column=column, participate=True, n_main=1)
        pids = cage.pids
        with cage:
            TestFaults().bind(cage)
            run_groups(cage, "start_reset", 0)
            with pytest.raises(DummyFaultError, match="step number 3") as caught:
                run(cage, "start_decorrelation", [5] * N, 0)
            assert f"in environment {4 + column} (FaultyEnv)" in notes_of(caught.value)
            TestFaults().assert_all_gone(cage, pids)


def test_several_that_hang_while_closing_share_the_time() -> None:
    factories = [partial(FaultyEnv, "close", "hang")] * N
    cage = synchronized(factories, n_workers=4)
    pids = cage.pids
    _ = cage.spaces
    set_timeout(cage, TIMEOUT_S)
    with (
        within(WITHIN_S + TIMEOUT_S),
        pytest.raises(WorkerTimeoutError, match=r"worker 0 .* did not answer .* during close"),
    ):
        cage.close()
    assert all(wait_until_gone(pid) for pid in pids)


def test_constructor_errors_kill_the_workers_that_were_started() -> None:
    with pytest.raises(DummyFaultError, match="constructor number 1"):
        make("constructor", column=3, participate=True, n_workers=1, n_main=1)
