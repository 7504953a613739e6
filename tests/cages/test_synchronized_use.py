"""Requests, interruptions, and what the workers of a SynchronizedProcessCage cost."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from cage_makers import synchronized
from waiting import alarm

from parllel.cages import SynchronizedProcessCage
from parllel.errors import ClosedError, RegistrationError
from parllel.system.processes.process_table import process_runs
from parllel.system.waits import available_kinds
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_faults_contract import wait_until_gone
from parllel.testing.cages.cage_hooks import FIRST, clocks, run, run_groups
from parllel.testing.cages.row_reference import make_samples, plain

SCRIPT = Path(__file__).parent / "synchronized_script.py"
T, N = 5, 5


class Large(CountingEnv):
    """Has much to say, and takes its time if told to."""

    slow_s = 0.0

    def step(self, action: Any) -> Any:
        time.sleep(self.slow_s)
        return super().step(action)

    def much(self, size: int) -> Any:
        return np.full(size, self._mark)

    def slowly(self) -> str:
        time.sleep(0.2)
        return "late"


def bound(**options: Any) -> tuple[SynchronizedProcessCage, Any]:
    cage = synchronized([partial(Large, 9)] * N, **options)
    samples = make_samples(CountingEnv(), T, N + 2, storage="managed")
    cage.set_samples_buffer(samples, slice(FIRST, FIRST + N))
    run_groups(cage, "start_reset", 0)
    return cage, samples


@pytest.mark.parametrize("participate", [False, True])
def test_long_requests_and_replies(participate: bool) -> None:
    cage, _ = bound(participate=participate)
    with cage:
        marks = [int(mark[0]) for mark in cage.much(1)]
        replies = cage.much(1_300_000)  # 10 MB each
        assert [reply.shape for reply in replies] == [(1_300_000,)] * N
        assert [int(reply[-1]) for reply in replies] == marks
        assert cage.add(np.ones(1_300_000), right=1)[-1].sum() == 2_600_000


def test_what_cannot_be_sent_leaves_the_cage_as_it_was() -> None:
    cage, samples = bound(participate=True)
    with cage:
        lambda_of = [lambda: None][0]
        for argument in (sys._getframe(), (x for x in ())):
            with pytest.raises((TypeError, pickle.PicklingError), match=r"pickle"):
                cage.env_method("add", argument)
            assert cage.add(1) == [2] * N
        with pytest.raises(TypeError, match="unsupported operand"):
            cage.add(lambda_of)  # which can be sent
        foreign = make_samples(CountingEnv(), T, N, storage="shared")
        with pytest.raises(RegistrationError, match="shared"):
            cage.set_samples_buffer(foreign, slice(0, N))
        run_groups(cage, "start_row", 0)
        assert clocks(samples, 1) == [[0, 1]] * N
        assert cage.collect_completed_trajs() == []


def test_an_interrupted_wait_can_be_taken_up_again() -> None:
    for options in ({}, {"participate": True, "n_main": 1}, {"wait": "semaphore"}):
        cage, samples = bound(**options)
        with cage:
            cage.slow_s = 0.1
            if options.get("participate"):
                cage._pool.main.groups[0].stepper.envs[0].slow_s = 0.0
            cage.start_row(0)
            with alarm(0.05):
                cage.finish_row()
            cage.finish_row()
            assert clocks(samples, 1) == [[0, 1]] * N
            run_groups(cage, "start_row", 1)
            assert clocks(samples, 2) == [[0, 2]] * N
            assert cage.add(1, 2) == [3] * N


@pytest.mark.parametrize("what", ["call", "decorrelation", "share of main"])
def test_an_interruption_of_anything_else_ends_the_cage(what: str) -> None:
    cage, _ = bound(participate=what == "share of main", n_main=None)
    pids = cage.pids
    with cage:
        cage.slow_s = 0.3
        if what == "decorrelation":
            cage.start_decorrelation([1] * N, 0)
        elif what == "share of main":
            cage.start_row(0)
        with alarm(0.1):
            cage.slowly() if what == "call" else cage.finish_row()
        with pytest.raises(ClosedError, match="ended after KeyboardInterrupt: by the alarm"):
            cage.finish_row()
    assert all(wait_until_gone(pid) for pid in pids)


def test_ctrl_c_in_a_row_closes_cleanly() -> None:
    for group in (0, 1):
        cage, _ = bound(n_groups=2)
        pids = cage.pids
        with alarm(0.05), cage:
            cage.slow_s = 5.0
            cage.start_row(0, 0)
            cage.start_row(0, 1)
            cage.finish_row(group)
        assert all(wait_until_gone(pid) for pid in pids)


@pytest.mark.parametrize(("method", "state"), [("fork", "busy"), ("forkserver", "idle")])
def test_workers_end_with_a_killed_parent(method: str, state: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, str(SCRIPT), method, state],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert all(process_runs(pid) for pid in pids)
    parent.kill()
    parent.communicate(timeout=30)
    assert all(wait_until_gone(pid) for pid in pids)


@pytest.mark.parametrize("wait", available_kinds())
@pytest.mark.parametrize("spin_us", [None, 1000.0])
def test_workers_without_work_take_no_time(wait: str, spin_us: float | None) -> None:
    cage, _ = bound(wait=wait, spin_us=spin_us)
    with cage:
        for t in range(T):
            run_groups(cage, "start_row", t)
        time.sleep(0.1)
        workers = [psutil.Process(pid) for pid in cage.pids]
        before = [sum(worker.cpu_times()[:2]) for worker in workers]
        time.sleep(0.5)
        after = [sum(worker.cpu_times()[:2]) for worker in workers]
    assert max(b - a for a, b in zip(before, after, strict=True)) < 0.05


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity masks")
@pytest.mark.parametrize("n_workers", [1, 5])
def test_one_core_is_enough(n_workers: int) -> None:
    mask = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, [min(mask)])
        for wait in available_kinds():
            cage, samples = bound(wait=wait, n_workers=n_workers)
            with cage:
                for t in range(T):
                    run_groups(cage, "start_row", t)
                assert clocks(samples, T) == [[0, T]] * N
    finally:
        os.sched_setaffinity(0, mask)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity masks")
def test_workers_are_pinned_in_turn() -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    cage, samples = bound(n_workers=3, cores=cores)
    with cage:
        found = [os.sched_getaffinity(pid) for pid in cage.pids]
        assert found == [{cores[w % len(cores)]} for w in range(3)]
        run_groups(cage, "start_row", 0)
        assert clocks(samples, 1) == [[0, 1]] * N


def test_wrong_arguments() -> None:
    for arguments, message in (
        ({"env_factories": []}, "expected at least one factory .*, got 0 factories and 0 seeds"),
        ({"seeds": [1]}, "one seed per factory, got 5 factories and 1 seeds"),
        ({"timeout_s": 0.0}, r"timeout_s: expected a positive number of seconds, got 0\.0"),
        ({"n_main": 1}, "n_main: expected None without participate=True, got 1"),
        ({"n_groups": 6}, "n_groups: expected 1 to 5 for 5 environments, got 6"),
        ({"check": "never"}, "check: expected one of .*, got 'never'"),
        ({"wait": "prayer"}, "kind: expected one of"),
        ({"spin_us": -1.0}, "spin_us: expected a finite number of at least 0"),
        ({"start_method": "clone"}, "start_method"),
        ({"cores": []}, "cores: expected None or at least one core number"),
        ({"cores": [100_000]}, r"cores: expected numbers from \[\d.*\], got 100000"),
    ):
        options = {"env_factories": [CountingEnv] * N, "n_workers": 2, "start_method": "fork"}
        with pytest.raises(ValueError, match=message):
            start(options | arguments)


def start(options: dict[str, Any]) -> None:
    with SynchronizedProcessCage(**options) as cage:
        _ = cage.spaces


def test_decorrelation_counts_may_be_of_numpy() -> None:
    cage, samples = bound(n_groups=2, participate=True)
    with cage:
        run(cage, "start_decorrelation", np.arange(N), 1)
        assert clocks(samples, 1)[1:] == [[0, count] for count in range(1, N)]
        assert plain(samples.env.observation, 1, FIRST).tolist() == [0, 0, 0]
