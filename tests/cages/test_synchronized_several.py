"""Several workers of a SynchronizedProcessCage fail, differ or close at the same time."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import pytest
from cage_makers import begin, synchronized
from waiting import until

from parllel.buffers import conversation
from parllel.cages import ProcessCage
from parllel.cages.workers import worker_pool
from parllel.errors import WorkerDiedError, first_of
from parllel.samplers.cage_columns import CageColumns
from parllel.testing import CountingEnv, FaultyEnv
from parllel.testing.cages.cage_faults_contract import wait_until_gone, within
from parllel.testing.cages.cage_hooks import notes_of, run_groups
from parllel.testing.faulty_envs import CrowdedEnv, DummyFaultError

N = 4
Factories = list[Callable[[], Any]]


make = partial(synchronized, index=4)


@pytest.mark.parametrize("fault", ["raise", "kill"])
def test_a_crash_at_the_start_is_not_kept_until_others_have_started(fault: str) -> None:
    expected = DummyFaultError if fault == "raise" else WorkerDiedError
    factories: Factories = [partial(FaultyEnv, "constructor", "hang")] * N
    factories[3] = partial(FaultyEnv, "constructor", fault)
    cage = make(factories, n_workers=4, timeout_s=3600.0)
    with cage, pytest.raises(expected, match=r"constructor number 1|SIGKILL") as caught:
        _ = cage.spaces
    assert "worker 3 (environments 7)" in notes_of(caught.value)
    assert all(wait_until_gone(pid) for pid in cage.pids)


def test_several_that_do_not_start_in_time_are_listed() -> None:
    factories: Factories = [partial(FaultyEnv, "constructor", "hang")] * 2 + [CountingEnv]
    listed = r"worker 0 \(.*did not answer within 0.5 s.*worker 1 \(.*did not answer"
    with (
        make(factories, n_workers=3, timeout_s=0.5) as cage,
        pytest.raises(TimeoutError, match=listed),
    ):
        _ = cage.spaces


def test_several_that_die_in_a_step_are_listed() -> None:
    with make([CountingEnv] * N, n_workers=4) as cage:
        begin(cage)
        for w in (0, 2, 3):
            os.kill(cage.pids[w], signal.SIGKILL)
        # As the cage notices it, which may be after they have gone.
        until(lambda: all(cage._pool.workers[w].child.died() for w in (0, 2, 3)))
        with pytest.raises(WorkerDiedError, match=r"worker 0 \(environments 4 ") as caught:
            run_groups(cage, "start_row", 0)
    said = str(caught.value)
    assert re.findall(r"worker (\d) ", said) == ["0", "2", "3"]
    assert said.count("was killed by SIGKILL during step at row 0") == 3


def test_several_that_raise_in_a_step_are_listed() -> None:
    factories: Factories = [partial(FaultyEnv, "step"), CountingEnv]
    factories += [partial(FaultyEnv, "step", "attribute_error"), partial(FaultyEnv, "step", "exit")]
    with make(factories, n_workers=4) as cage:
        begin(cage)
        cage.start_row(0)
        failed = [0, 2]
        until(lambda: all(cage._pool.control.wait.load(1 + w) < 0 for w in failed))
        until(lambda: cage._pool.workers[3].child.died())
        with pytest.raises(DummyFaultError, match="step number 1") as caught:
            cage.finish_row()
    (note,) = [note for note in caught.value.__notes__ if note.startswith("also ")]
    assert re.search(r"AttributeError: no simulator here, in environment 6 .* in worker 2 \(", note)
    assert re.search(r"also worker 3 \(.*exited with code 3 during step at row 0", note)


def test_several_errors_of_a_call_are_listed() -> None:
    with make([CountingEnv] * N) as cage:
        with pytest.raises(ValueError, match="asked to") as caught:
            cage.fail()
        assert re.search(r"also ValueError: .*asked to.* in worker 1 \(", notes_of(caught.value))
        assert cage.add(1, right=2) == [3] * N


def test_not_all_of_hundreds_are_listed() -> None:
    error = first_of([ValueError("x" * 1000) for _ in range(100)])
    (note,) = error.__notes__
    assert note.endswith("also 91 more")
    assert len(note) < 4000
    assert first_of([error]).__notes__ == [note]


class OtherEnv(CountingEnv):
    """Has a wider observation."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (7,))


@pytest.mark.parametrize(
    ("column", "options", "than"),
    [
        (2, {"n_workers": 2}, 4),
        (3, {"n_workers": 1}, 4),
        (3, {"n_workers": 3, "participate": True, "n_main": 1}, 4),
        (2, {"n_workers": 1, "n_groups": 2}, 4),
    ],
    ids=["another worker", "the same worker", "main's share", "another group"],
)
def test_an_environment_whose_spaces_differ_is_named(
    column: int, options: dict[str, Any], than: int
) -> None:
    factories: Factories = [CountingEnv] * N
    factories[column] = OtherEnv
    if column == 2:  # all of that part, so that the parts differ from each other
        factories[3] = OtherEnv
    space = CountingEnv().observation_space
    message = (
        f"environment {4 + column}: its spaces differ from those of environment {than}: expected "
        f"{space} and Discrete(4), got Box(-1.0, 1.0, (7,), float32) and Discrete(4)"
    )
    with make(factories, **options) as cage, pytest.raises(ValueError, match=re.escape(message)):
        _ = cage.spaces


def test_workers_that_do_not_leave_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a thread that runs on."""
    leave_s = 1.5
    monkeypatch.setattr(conversation, "LEAVE_S", leave_s)
    cage = make([CrowdedEnv] * 5, n_workers=5)
    _ = cage.spaces
    pids = cage.pids
    with within(3 * leave_s):
        cage.close()
    assert all(wait_until_gone(pid) for pid in pids)


def test_process_cages_that_do_not_leave_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_s = 1.5
    monkeypatch.setattr(conversation, "LEAVE_S", leave_s)
    cages = [ProcessCage(CrowdedEnv, start_method="fork", index=i) for i in range(4)]
    columns = CageColumns(cages, len(cages))
    pids = [cage.pid for cage in cages]
    with within(3 * leave_s):
        columns.close()
    assert all(wait_until_gone(pid) for pid in pids)


def test_those_that_are_busy_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would not hand over what they have collected."""
    monkeypatch.setattr(worker_pool, "RESCUE_S", 3600.0)
    factories: Factories = [partial(FaultyEnv, "step", "hang"), CountingEnv]
    factories += [partial(FaultyEnv, "step", "kill"), CountingEnv]
    with make(factories, timeout_s=3600.0) as cage:
        begin(cage)
        with pytest.raises(
            WorkerDiedError, match=r"\Aworker 1 .* by SIGKILL during step at row 0\Z"
        ):
            run_groups(cage, "start_row", 0)
        assert cage.collect_completed_trajs() == []
