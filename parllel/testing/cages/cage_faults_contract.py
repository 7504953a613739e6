"""Contract of process cages whose environments fail, hang, or kill their process.

class TestFaultsOfMyCage(MakesMyCage, CageFaultsContract):
    pass

Each test makes one environment fail in one way, in one phase of its life. In every case the error arrives
promptly, names the environment, and no process is left.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from parllel.buffers.samples import Samples
from parllel.cages.process_cage import ProcessCage
from parllel.errors import (
    ClosedError,
    WorkerDiedError,
    WorkerError,
    WorkerTimeoutError,
    WorkerTracebackError,
)
from parllel.system.processes.process_table import process_runs
from parllel.testing.cages.cage_hooks import CageHooks, T, notes_of, run_groups
from parllel.testing.cages.row_reference import make_samples, plain
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import PHASES, DummyFaultError, FaultyEnv

WITHIN_S = 10.0  # for the error to arrive: well before the time-out, even on a busy machine
GONE_S = 30.0  # for the processes to end
FIRST_INDEX = 4  # number of the first environment
# fault -> exception type, message
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
SILENT: dict[str, tuple[type[Exception], str]] = dict.fromkeys(
    ("hang", "hang_in_c", "stop"), (WorkerTimeoutError, r"did not answer within [0-9.]+ s")
)
FAULTS = {**RAISED, **ENDED, **SILENT}
DOING = {
    "constructor": r"while (it was|its environments were) made",
    "reset": "during reset at row 0",
    "step": "during step at row 0",
    "attribute": "during get",
    "close": "during close",
}


class SlowEnv(CountingEnv):
    """Environment that hangs in one phase: "start", "reset" or "step"."""

    def __init__(self, phase: str) -> None:
        super().__init__()
        self.phase = phase
        self._enter("start")

    def _enter(self, phase: str) -> None:
        if phase == self.phase:
            time.sleep(60)

    def reset(self, **options: Any) -> Any:
        """Reset, or hang."""
        self._enter("reset")
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        """Step, or hang."""
        self._enter("step")
        return super().step(action)


class FailsToCloseEnv(FaultyEnv):
    """Environment that fails in a step, and then fails or hangs in `close`."""

    def __init__(self, ending: str) -> None:
        super().__init__("step", lengths=9)
        self.ending = ending

    def close(self) -> None:
        """Fail."""
        if self.ending == "hangs":
            time.sleep(60)
        raise RuntimeError("nor can it be closed")


class CageFaultsContract(CageHooks):
    """Tests of cages whose environments run in processes. `make` receives `index`, the first one's number.

    Attributes:
        silent_s: time-out for an environment that hangs, long enough for others to finish their work.
        silent_start_s: the same for a constructor, which includes the start of the processes.
    """

    n = 4
    storage = "managed"
    silent_s = 0.3
    silent_start_s = 3.0

    def pids(self, cage: Any) -> list[int]:
        """Return the processes of a cage."""
        return [cage.pid] if isinstance(cage, ProcessCage) else list(cage.pids)

    def whose(self, pids: list[int], kind: str) -> str:
        """Return a regex that locates the failing environment, which is the middle one.

        kind: the environments' name in errors, after a space; empty before the cage knows it.
        """
        if self.n == 1:
            return rf"cage 4{f' [(]{kind[1:]}[)]' if kind else ''}.* process {pids[0]}"
        return (
            rf"worker 1 \(environments 6(-7)?{' of' + kind if kind else ''}\).* process {pids[1]}"
        )

    def set_timeout(self, cage: Any, timeout_s: float) -> None:
        """Change the reply time-out of a started cage's processes."""
        set_timeout(cage, timeout_s)

    def faulty(self, phase: str, fault: str = "raise", *, lengths: int = 9, **options: Any) -> Any:
        """Return a cage in which one environment fails."""
        factories: list[Any] = [partial(FaultyEnv, "step", number=10**9, lengths=lengths)] * self.n
        factories[self.n // 2] = partial(FaultyEnv, phase, fault, lengths=lengths, **options)
        return self.made(factories, index=FIRST_INDEX)

    def bind(self, cage: Any) -> Samples:
        """Allocate samples and bind a cage to them."""
        samples = make_samples(CountingEnv(), T, self.n, storage=self.storage)
        cage.set_samples_buffer(samples, slice(0, self.n))
        return samples

    def prepare(self, cage: Any, phase: str) -> None:
        """Bring a cage to the beginning of a phase."""
        if phase == "constructor":
            return
        _ = cage.spaces
        if phase in ("reset", "step"):
            self.bind(cage)
        if phase == "step":
            run_groups(cage, "start_reset", 0)

    def assert_all_gone(self, cage: Any, pids: list[int]) -> None:
        """Check that the processes have ended and that the cage reports it."""
        assert all(wait_until_gone(pid) for pid in pids)
        for method in ("start_reset", "finish_row", "environment_states"):
            with pytest.raises(ClosedError, match=r"cage .*4.*(ended after|used after close)"):
                getattr(cage, method)()
        with pytest.raises(ClosedError, match=r"cage .*4.*(ended after|used after close)"):
            _ = cage.gravity

    @pytest.mark.parametrize("phase", PHASES)
    @pytest.mark.parametrize("fault", sorted(FAULTS))
    def test_faults_of_an_environment(self, fault: str, phase: str) -> None:
        cage = self.faulty(phase, fault)
        pids = self.pids(cage)
        expected, text = FAULTS[fault]
        silent_s = (self.silent_start_s if phase == "constructor" else self.silent_s) * (
            fault in SILENT
        )
        with cage:
            self.prepare(cage, phase)
            self.set_timeout(cage, silent_s or 20.0)
            began = time.monotonic()
            with pytest.raises(expected, match=text) as caught:
                enter(cage, phase)
            if phase != "constructor":  # which includes the start of an interpreter
                assert time.monotonic() - began < WITHIN_S + silent_s
            said = notes_of(caught.value)
            kind = "" if phase == "constructor" else f" {self.env_name('FaultyEnv')}"
            assert re.search(self.whose(pids, kind), said)
            assert re.search(DOING[phase], said)
            if fault in RAISED:
                assert isinstance(caught.value.__cause__, WorkerTracebackError)
                assert "faulty_envs.py" in said
                assert "self._enter(" in said
            if phase == "attribute" and fault in RAISED:
                assert self.each(cage.gravity) == [9.8] * self.n  # the processes live
                return
            self.assert_all_gone(cage, pids)

    @pytest.mark.parametrize("fault", sorted(RAISED))
    def test_a_reset_ahead_of_time_that_fails_is_told(self, fault: str) -> None:
        factories: list[Any] = [partial(CountingEnv, 2)] * self.n
        factories[self.n // 2] = partial(FaultyEnv, "reset", fault, number=2, lengths=2)
        expected, text = RAISED[fault]
        with self.made(factories, index=FIRST_INDEX, reset_automatically=False) as cage:
            samples = self.bind(cage)
            run_groups(cage, "start_reset", 0)
            run_groups(cage, "start_row", 0)
            # At the end of the row in which it comes, or at the next call: it happens in between.
            with pytest.raises(expected, match=text.replace("1", "2")) as caught:
                _run_rows(cage, 1, 2)
            number, name = FIRST_INDEX + self.n // 2, self.env_name("FaultyEnv")
            assert f"environment {number} ({name}), during reset" in notes_of(caught.value) or (
                fault == "unpicklable"
            )
            # Of its own column: other workers may be in the middle of the row when the error comes.
            assert plain(samples.env.reward, 1, self.n // 2) == 2.0

    @pytest.mark.parametrize(
        "name", ["start", "bind", "idle", "reset", "step", "attribute", "close"]
    )
    def test_kill_from_outside(self, name: str) -> None:
        cage = self.made([partial(SlowEnv, name)] * self.n, index=FIRST_INDEX)
        pids = self.pids(cage)
        with cage:
            if name == "bind":
                _ = cage.spaces
            elif name != "start":
                self.bind(cage)
            if name == "reset":
                cage.start_reset(0)
            elif name == "step":
                run_groups(cage, "start_reset", 0)
                cage.start_row(0)
            notice: dict[str, Callable[[], Any]] = {
                "start": lambda: cage.spaces,
                "bind": lambda: self.bind(cage),
                "idle": lambda: run_groups(cage, "start_reset", 0),
                "attribute": lambda: cage.gravity,
                "close": cage.close,
                "reset": cage.finish_row,
                "step": cage.finish_row,
            }
            os.kill(pids[0], signal.SIGKILL)
            assert name != "bind" or wait_until_gone(pids[0])
            with (
                within(),
                pytest.raises(
                    WorkerDiedError, match=r"(cage 4|worker 0 \(env.* 4).*killed by SIGKILL"
                ),
            ):
                notice[name]()
            assert all(wait_until_gone(pid) for pid in pids)

    @pytest.mark.parametrize("ending", ["hangs", "raises"])
    def test_the_first_error_wins_over_that_of_closing(self, ending: str) -> None:
        with self.made([partial(FailsToCloseEnv, ending)] * self.n) as cage:
            self.prepare(cage, "step")
            with within(), pytest.raises(DummyFaultError, match="step number 1"):
                run_groups(cage, "start_row", 0)

    @pytest.mark.parametrize("phase", ["constructor", "reset"])
    def test_a_cage_that_was_never_asked_can_be_closed(self, phase: str) -> None:
        cage = self.faulty(phase, "hang")
        pids = self.pids(cage)
        cage.close()
        assert all(wait_until_gone(pid) for pid in pids)


def _run_rows(cage: Any, *rows: int) -> None:
    for t in rows:
        run_groups(cage, "start_row", t)


def enter(cage: Any, phase: str) -> None:
    """Run a phase of a cage."""
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


@contextmanager
def within(limit_s: float = WITHIN_S) -> Iterator[None]:
    """Fail if a block takes longer, as a wait for a time-out would."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < limit_s


def wait_until_gone(pid: int) -> bool:
    """Return whether a process ends in time."""
    deadline = time.monotonic() + GONE_S
    while process_runs(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def set_timeout(cage: Any, timeout_s: float) -> None:
    """Change the reply time-out of the workers of parllel's cages."""
    conversations = [cage._conversation] if isinstance(cage, ProcessCage) else cage._pool.workers
    for conversation in conversations:
        conversation.timeout_s = timeout_s
    if not isinstance(cage, ProcessCage):
        cage._pool._timeout_s = timeout_s
