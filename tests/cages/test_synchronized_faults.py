"""What happens to a SynchronizedProcessCage when an environment or a worker fails."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from cage_makers import WITHIN_S, set_timeout, wait_until_gone

from parllel.cages import SynchronizedProcessCage
from parllel.errors import (
    ClosedError,
    WorkerDiedError,
    WorkerError,
    WorkerTimeoutError,
    WorkerTracebackError,
)
from parllel.testing import CountingEnv, DummyFaultError, FaultyEnv
from parllel.testing.cage_hooks import notes_of, run, run_groups
from parllel.testing.faulty_envs import PHASES
from parllel.testing.row_reference import make_samples

TIMEOUT_S = 0.3
T, N = 5, 4
NEVER = 10**9
# fault -> what is raised, what it says
RAISED: dict[str, tuple[type[Exception], str]] = {
    "raise": (DummyFaultError, "number 1 failed as it was told to"),
    "unpicklable": (WorkerError, r"faulty_envs\.UnpicklableFaultError: holds a lock"),
    "attribute_error": (AttributeError, "no simulator here"),
    "broken_pipe": (BrokenPipeError, "the simulator hung up"),
}
ENDED: dict[str, tuple[type[Exception], str]] = {
    "system_exit": (WorkerError, "SystemExit: 3"),
    "exit": (WorkerDiedError, "exited with code 3"),
    "segfault": (WorkerDiedError, "was killed by SIGSEGV"),
    "kill": (WorkerDiedError, "was killed by SIGKILL"),
}
SILENT = dict.fromkeys(
    ("hang", "hang_in_c", "stop"), (WorkerTimeoutError, r"did not answer within (0\.)?3 s")
)
FAULTS = {**RAISED, **ENDED, **SILENT}
DOING = {
    "constructor": "while its environments were made",
    "reset": "during reset at row 0",
    "step": "during step at row 0",
    "attribute": "during get",
    "close": "during close",
}


def make(
    phase: str = "step", fault: str = "raise", *, number: int = 1, column: int = 2, **options: Any
) -> SynchronizedProcessCage:
    """Return a cage over two workers of four environments, from number 4 on; that of `column` fails."""
    never = partial(FaultyEnv, "step", number=NEVER, lengths=9)
    factories = [never] * N
    factories[column] = partial(FaultyEnv, phase, fault, number=number, lengths=9)
    settings = {"n_workers": 2, "start_method": "fork", "timeout_s": 20.0}
    return SynchronizedProcessCage(factories, index=4, seeds=range(N), **{**settings, **options})


def sound(**options: Any) -> SynchronizedProcessCage:
    """Return the same without a fault."""
    return make(number=NEVER, **options)


def bind(cage: SynchronizedProcessCage) -> Any:
    samples = make_samples(CountingEnv(), T, N, storage="managed")
    cage.set_samples_buffer(samples, slice(0, N))
    return samples


def prepare(cage: SynchronizedProcessCage, phase: str) -> None:
    """Do all that comes before a phase."""
    if phase == "constructor":
        return
    _ = cage.spaces
    if phase in ("reset", "step"):
        bind(cage)
    if phase == "step":
        run_groups(cage, "start_reset", 0)


def enter(cage: SynchronizedProcessCage, phase: str) -> None:
    if phase == "constructor":
        _ = cage.spaces
    elif phase == "reset":
        run_groups(cage, "start_reset", 0)
    elif phase == "step":
        run_groups(cage, "start_row", 0)
    elif phase == "attribute":
        _ = cage.fragile
    else:
        cage.close()


def assert_all_gone(cage: SynchronizedProcessCage, pids: list[int]) -> None:
    assert all(wait_until_gone(pid) for pid in pids)
    for method in ("start_reset", "finish_row", "environment_states"):
        with pytest.raises(ClosedError, match=r"cage of env.*4 to 7.*(ended after|used after)"):
            getattr(cage, method)()
    with pytest.raises(ClosedError, match=r"cage of env.*4 to 7.*(ended after|used after)"):
        _ = cage.gravity


def check_fault(fault: str, phase: str, **options: Any) -> None:
    cage = make(phase, fault, **options)
    pids = cage.pids
    expected, text = FAULTS[fault]
    with cage:
        prepare(cage, phase)
        # A constructor includes the start of an interpreter, and the sound worker has to start as well.
        silent_s = TIMEOUT_S if phase != "constructor" else 10 * TIMEOUT_S
        set_timeout(cage, silent_s if fault in SILENT else 20.0)
        began = time.monotonic()
        with pytest.raises(expected, match=text) as caught:
            enter(cage, phase)
        if phase != "constructor":  # which includes the start of an interpreter
            assert time.monotonic() - began < WITHIN_S + (TIMEOUT_S if fault in SILENT else 0.0)
        said = notes_of(caught.value)
        numbers = "6" if options.get("participate") else "6-7"
        kind = "" if phase == "constructor" else " of FaultyEnv"
        assert f"worker 1 (environments {numbers}{kind})" in said
        assert f"process {pids[1]}" in said
        assert DOING[phase] in said
        if fault in RAISED:
            assert isinstance(caught.value.__cause__, WorkerTracebackError)
            assert "faulty_envs.py" in said
            assert "self._enter(" in said
        if phase == "attribute" and fault in RAISED:
            assert cage.gravity == [9.8] * N  # the workers live
            return
        assert_all_gone(cage, pids)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_faults_of_an_environment(fault: str, phase: str) -> None:
    # Some of the time main has a share as well, which ends with the others.
    check_fault(fault, phase, participate=len(fault + phase) % 2 == 0, n_workers=2, n_main=None)


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
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
    check_fault(fault, phase, start_method=start_method, wait="semaphore")


@pytest.mark.parametrize("wait", ["semaphore", "compiled"])
@pytest.mark.parametrize("fault", ["raise", "kill", "stop"])
def test_faults_under_other_waits(fault: str, wait: str) -> None:
    check_fault(fault, "step", wait=wait)


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
        prepare(cage, phase)
        try:
            enter(cage, phase)
        except DummyFaultError:
            if phase == "attribute":
                assert cage.gravity == [9.8] * N
            else:
                assert_all_gone(cage, pids)
            raise


def test_an_error_of_a_call_comes_once_all_have_answered() -> None:
    with sound() as cage:
        with pytest.raises(ValueError, match="asked to"):
            cage.fail()
        with pytest.raises(AttributeError, match="unheard"):
            _ = cage.unheard
        # No answer is left that the next call might take for its own.
        assert cage.add(1, right=2) == [3] * N


def test_decorrelation_that_fails_ends_the_cage() -> None:
    for column in (2, N - 1):  # of a worker, of main
        cage = make(number=3, column=column, participate=True, n_main=1)
        pids = cage.pids
        with cage:
            bind(cage)
            run_groups(cage, "start_reset", 0)
            with pytest.raises(DummyFaultError, match="step number 3") as caught:
                run(cage, "start_decorrelation", [5] * N, 0)
            assert f"in environment {4 + column} (FaultyEnv)" in notes_of(caught.value)
            assert_all_gone(cage, pids)


def run_rows(cage: SynchronizedProcessCage, *rows: int) -> None:
    for t in rows:
        run_groups(cage, "start_row", t)


@pytest.mark.parametrize("fault", sorted(RAISED))
def test_a_reset_ahead_of_time_that_fails_is_told(fault: str) -> None:
    factories: list[Any] = [partial(CountingEnv, 2)] * N
    factories[2] = partial(FaultyEnv, "reset", fault, number=2, lengths=2)
    expected, text = RAISED[fault]
    cage = SynchronizedProcessCage(
        factories, n_workers=2, index=4, reset_automatically=False, start_method="fork"
    )
    with cage:
        bind(cage)
        run_groups(cage, "start_reset", 0)
        run_groups(cage, "start_row", 0)
        # At the end of the row in which it comes, or at the next call: it happens in between.
        with pytest.raises(expected, match=text.replace("1", "2")) as caught:
            run_rows(cage, 1, 2)
        said = notes_of(caught.value)
        assert "environment 6 (FaultyEnv), during reset" in said or fault == "unpicklable"


@pytest.mark.parametrize("name", ["start", "bind", "idle", "reset", "step", "attribute", "close"])
def test_kill_from_outside(name: str) -> None:
    class Slow(CountingEnv):
        """Takes for ever over what it is asked to."""

        def __init__(self) -> None:
            super().__init__()
            if name == "start":
                time.sleep(60)

        def reset(self, **options: Any) -> Any:
            if name == "reset":
                time.sleep(60)
            return super().reset(**options)

        def step(self, action: Any) -> Any:
            if name == "step":
                time.sleep(60)
            return super().step(action)

    cage = SynchronizedProcessCage(
        [Slow] * N, n_workers=2, index=4, start_method="fork", timeout_s=20.0
    )
    pids = cage.pids
    with cage:
        if name == "bind":
            _ = cage.spaces
        elif name != "start":
            bind(cage)
        if name == "reset":
            cage.start_reset(0)
        elif name == "step":
            run_groups(cage, "start_reset", 0)
            cage.start_row(0)
        notice: dict[str, Callable[[], Any]] = {
            "start": lambda: cage.spaces,
            "bind": lambda: bind(cage),
            "idle": lambda: run_groups(cage, "start_reset", 0),
            "attribute": lambda: cage.gravity,
            "close": cage.close,
            "reset": cage.finish_row,
            "step": cage.finish_row,
        }
        os.kill(pids[0], signal.SIGKILL)
        assert name != "bind" or wait_until_gone(pids[0])
        began = time.monotonic()
        with pytest.raises(WorkerDiedError, match=r"worker 0 \(env.*4-5.*killed by SIGKILL"):
            notice[name]()
        assert time.monotonic() - began < WITHIN_S
        assert all(wait_until_gone(pid) for pid in pids)


def test_several_that_hang_while_closing_share_the_time() -> None:
    factories = [partial(FaultyEnv, "close", "hang")] * N
    cage = SynchronizedProcessCage(factories, n_workers=4, start_method="fork", timeout_s=20.0)
    pids = cage.pids
    _ = cage.spaces
    set_timeout(cage, TIMEOUT_S)
    began = time.monotonic()
    with pytest.raises(WorkerTimeoutError, match=r"worker 0 .* did not answer .* during close"):
        cage.close()
    assert time.monotonic() - began < WITHIN_S + TIMEOUT_S
    assert all(wait_until_gone(pid) for pid in pids)


def test_constructor_errors_kill_the_workers_that_were_started() -> None:
    with pytest.raises(DummyFaultError, match="constructor number 1"):
        make("constructor", column=3, participate=True, n_workers=1, n_main=1)
    with pytest.raises(ValueError, match="kind: expected one of"):
        make(wait="prayer")
    with pytest.raises(ValueError, match="start_method"):
        make(start_method="clone")


def test_a_cage_that_was_never_asked_can_be_closed() -> None:
    for phase in ("constructor", "reset"):
        cage = make(phase, "hang")
        cage.close()
        assert all(wait_until_gone(pid) for pid in cage.pids)
