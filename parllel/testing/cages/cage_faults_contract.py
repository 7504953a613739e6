"""Contract of process cages whose environments fail, hang, or kill their process.

class TestFaultsOfMyCage(MakesMyCage, CageFaultsContract):
    pass

Each test makes one environment fail in one way, in one phase of its life. In every case the error arrives
promptly, names the environment, and no process is left.
"""

# Who does what in a test of one fault:
#
#   FaultyEnv, in a worker     raises, ends its process, or never answers
#   the worker                 sends an exception before it closes anything; of an end, nothing
#   the cage, in this process  learns it by the pipe, by the death or only by its time-out,
#                              ends all workers, and raises
#   the test                   looks for the processes in the system table: a cage may be wrong

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
# The faults differ in who reports them. An exception is sent by the worker, which then leaves by
# itself; only one of an attribute leaves the worker in use.
# fault -> exception type, message
RAISED: dict[str, tuple[type[Exception], str]] = {
    "raise": (DummyFaultError, "number 1 failed as it was told to"),
    "unpicklable": (WorkerError, r"faulty_envs\.UnpicklableFaultError: holds a lock"),
    "attribute_error": (AttributeError, "no simulator here"),
    "broken_pipe": (BrokenPipeError, "the simulator hung up"),
}
# Here no worker is left to report anything, and the exit code tells what happened. `system_exit` is
# sent like an exception, but no handler in the worker survives it, not even that of an attribute.
ENDED: dict[str, tuple[type[Exception], str]] = {
    "system_exit": (WorkerError, "SystemExit: 3"),
    "exit": (WorkerDiedError, "exited with code 3"),
    "segfault": (WorkerDiedError, "was killed by SIGSEGV"),
    "kill": (WorkerDiedError, "was killed by SIGKILL"),
}
# Nothing ever arrives, and the process lives by every sign: only the time-out ends the wait, and
# only SIGKILL is sure to end the process, as a stopped one does not take SIGTERM.
SILENT: dict[str, tuple[type[Exception], str]] = dict.fromkeys(
    ("hang", "hang_in_c", "stop"), (WorkerTimeoutError, r"did not answer within [0-9.]+ s")
)
FAULTS = {**RAISED, **ENDED, **SILENT}
# What the error must say of the phase: a time-out and a death have no traceback that shows it.
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

    # With two workers, the failing environment has one neighbour in its own worker and two in the
    # other, whose processes must end as well.
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
        # A main process that takes part steps number 7, and worker 1 then has only number 6.
        return (
            rf"worker 1 \(environments 6(-7)?{' of' + kind if kind else ''}\).* process {pids[1]}"
        )

    def set_timeout(self, cage: Any, timeout_s: float) -> None:
        """Change the reply time-out of a started cage's processes."""
        set_timeout(cage, timeout_s)

    def faulty(self, phase: str, fault: str = "raise", *, lengths: int = 9, **options: Any) -> Any:
        """Return a cage in which one environment fails."""
        # All of one class, which never fails elsewhere: `fragile` is read from every environment,
        # and errors name the cage after the first.
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
        # Waits until all workers have made their environments, so that a fault of the next phase
        # cannot be taken for one of the constructor.
        _ = cage.spaces
        if phase in ("reset", "step"):
            self.bind(cage)
        if phase == "step":
            run_groups(cage, "start_reset", 0)

    def assert_all_gone(self, cage: Any, pids: list[int]) -> None:
        """Check that the processes have ended and that the cage reports it."""
        # Before the cage is closed: the failure itself must end the processes.
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
            # Only now, as a short time-out could end the phases before. For faults that end by
            # themselves it is above WITHIN_S, so that an error found by the time-out comes too late
            # and fails the test.
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
            # The worker's traceback, as text: the other one shows only the lines of the cage.
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
            # The episodes end in row 1. The worker reports that row first and resets afterwards, so
            # the failure belongs to no command, and main may not be waiting for anything.
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
        # In "start", "reset" and "step" the environment hangs, so the worker is sure to be in that
        # phase when it is killed. In the others it is idle, and its death races with the request.
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
            # The other workers are healthy, and must end with the cage all the same.
            os.kill(pids[0], signal.SIGKILL)
            # Binding introduces the buffers first. Here the pipe is certainly closed by then; in
            # the other phases the death may come before or after the request, and must be reported
            # as one.
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
        # The worker sends the error of the step and then closes its environments, which takes for
        # ever or raises. The parent gives it a short time to leave and kills it; neither may
        # replace the error.
        with self.made([partial(FailsToCloseEnv, ending)] * self.n) as cage:
            self.prepare(cage, "step")
            with within(), pytest.raises(DummyFaultError, match="step number 1"):
                run_groups(cage, "start_row", 0)

    @pytest.mark.parametrize("phase", ["constructor", "reset"])
    def test_a_cage_that_was_never_asked_can_be_closed(self, phase: str) -> None:
        cage = self.faulty(phase, "hang")
        pids = self.pids(cage)
        # The worker may still be in the constructor and read no request, so the cage kills it
        # without one. Asking would cost the time-out of a close.
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
    # Enter it outside of `pytest.raises`, which ends the expected exception. An exception that
    # passes through here skips the check.
    began = time.monotonic()
    yield
    assert time.monotonic() - began < limit_s


def wait_until_gone(pid: int) -> bool:
    """Return whether a process ends in time."""
    deadline = time.monotonic() + GONE_S
    # A zombie counts as gone: children of the fork server are collected by that server, later.
    while process_runs(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def set_timeout(cage: Any, timeout_s: float) -> None:
    """Change the reply time-out of the workers of parllel's cages."""
    # Two limits in a SynchronizedProcessCage: the pool waits for words with its own, and each
    # conversation for messages over its pipe.
    conversations = [cage._conversation] if isinstance(cage, ProcessCage) else cage._pool.workers
    for conversation in conversations:
        conversation.timeout_s = timeout_s
    if not isinstance(cage, ProcessCage):
        cage._pool._timeout_s = timeout_s
