"""Policies that act in the processes of a SynchronizedProcessCage."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest
from cage_makers import synchronized

from parllel.arrays import ManagedMemoryArray
from parllel.buffers.tree import buffer_rotate
from parllel.cages import Cage, ProcessCage, SynchronizedProcessCage, VectorizedCage
from parllel.errors import (
    ClosedError,
    WorkerDiedError,
    WorkerTimeoutError,
    WorkerTracebackError,
    WrongStateError,
)
from parllel.testing import CountingEnv, FaultyEnv
from parllel.testing.cages.cage_faults_contract import WITHIN_S, set_timeout, wait_until_gone
from parllel.testing.cages.cage_hooks import (
    FIRST,
    LENGTHS,
    SEEDS,
    N,
    T,
    draw_columns,
    factories_of,
    notes_of,
    run_groups,
)
from parllel.testing.cages.row_reference import (
    assert_same_batches,
    make_samples,
    read_batch,
    simulate,
)
from parllel.testing.faulty_envs import DummyFaultError

PLACES = {
    "worker": {"n_workers": 1},
    "workers": {"n_workers": 3},
    "groups": {"n_workers": 2, "n_groups": 3},
    "main and worker": {"n_workers": 1, "participate": True},
    "main and workers, groups": {"n_workers": 2, "n_groups": 2, "participate": True},
    "main with one of many groups": {
        "n_workers": 1,
        "n_groups": 4,
        "participate": True,
        "n_main": 1,
    },
}


class Replay:
    """Give the actions of a table [n][batch][row], one batch after the other.

    Attributes:
        trouble: (row, what to do there).
    """

    def __init__(self, table: Any, trouble: tuple[int, Any] = (-1, None)) -> None:
        self.table, self.trouble, self.batch = table, trouble, -1

    def bind(self, samples: Any, columns: slice) -> None:
        self.action = np.asarray(samples.agent.action)
        self.columns = range(columns.start, columns.stop)

    def start_batch(self) -> None:
        self.batch += 1

    def step(self, t: int) -> None:
        row, what = self.trouble
        if t == row:
            what()
        for b in self.columns:
            self.action[t, b] = self.table[b - FIRST][self.batch][t]


class ScreamError(RuntimeError):
    pass


def scream() -> None:
    raise ScreamError("no idea what to do")


def make(factories: Any = None, **options: Any) -> tuple[SynchronizedProcessCage, Any]:
    """Return a cage, and samples with a foreign column on either side."""
    factories = factories or factories_of()
    cage = synchronized(factories, **{"seeds": SEEDS, **options})
    return cage, make_samples(factories[0](), T, N + 2, storage="managed")


def ready(policy: Any, **options: Any) -> tuple[SynchronizedProcessCage, Any]:
    """Return a cage that a rollout can be started of."""
    cage, samples = make(**options)
    try:
        cage.set_policy(policy)
        cage.set_samples_buffer(samples, slice(FIRST, FIRST + N))
        run_groups(cage, "start_reset", 0)
    except BaseException:
        cage.close()
        raise
    return cage, samples


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_rollouts_fill_the_batch_as_a_plain_loop_does(place: Any, automatic: bool) -> None:
    table = draw_columns()
    expected = [
        simulate(CountingEnv(lengths), seed, actions, automatic=automatic)
        for lengths, seed, actions in zip(LENGTHS, SEEDS, table, strict=True)
    ]
    cage, samples = ready(partial(Replay, table), reset_automatically=automatic, **place)
    with cage:
        for k in range(len(table[0])):
            if k and not automatic:
                run_groups(cage, "start_reset", 0, all_envs=False)
            run_groups(cage, "start_rollout", T)
            final, trajs = cage.collect_final_observations(), cage.collect_completed_trajs()
            for i, records in enumerate(expected):
                wanted = records[k]
                made = read_batch(samples, FIRST + i, T)
                mine = [found for found in final if found.column == FIRST + i]
                made.final = [(found.row, found.observation) for found in mine]
                made.needs_reset, made.trajs = wanted.needs_reset, wanted.trajs
                assert_same_batches([made], [wanted])
                assert cage.needs_reset[i] == wanted.needs_reset[-1]
            lengths = [traj[0] for records in expected for traj in records[k].trajs]
            assert [traj.length for traj in trajs] == lengths
            # Columns of others stay as they were.
            foreign = [np.asarray(samples.env.reward)[:, b] for b in (0, N + 1)]
            assert not np.any(foreign)
            buffer_rotate(samples.env)


def test_rollouts_may_be_shorter_and_steps_may_come_between() -> None:
    table = [[[1] * T] * 3] * N
    cage, samples = ready(partial(Replay, table), n_groups=2)
    with cage:
        run_groups(cage, "start_rollout", 2)
        np.asarray(samples.agent.action)[2:] = 3
        run_groups(cage, "start_row", 2)
        reward = np.asarray(samples.env.reward)[:3, FIRST:-1]
        # 20 steps last the episodes of the third environment.
        np.testing.assert_array_equal(reward[:, 2], [1 + 1 / 8, 2 + 1 / 8, 3 + 3 / 8])


@pytest.mark.parametrize("participate", [False, True])
def test_memory_of_a_policy_is_shared(participate: bool) -> None:
    shared = ManagedMemoryArray((T, 1), np.int64)
    numbers = np.asarray(shared)

    class Told(Replay):
        def step(self, t: int) -> None:
            self.action[t, self.columns.start : self.columns.stop] = np.asarray(shared)[t]

    cage, samples = ready(lambda: Told(None), participate=participate)
    with cage:
        for k in range(2):
            numbers[:, 0] = [(k + t) % 4 for t in range(T)]
            run_groups(cage, "start_rollout", T)
            action = np.asarray(samples.agent.action)[:, FIRST:-1]
            np.testing.assert_array_equal(action, np.broadcast_to(numbers, (T, N)))
    shared.close()


@pytest.mark.parametrize("kind", ["Cage", "ProcessCage", "VectorizedCage", "Synchronized"])
def test_cages_without_a_policy_say_so(kind: str) -> None:
    makers: dict[str, Any] = {
        "Cage": lambda: Cage(CountingEnv),
        "ProcessCage": lambda: ProcessCage(CountingEnv, start_method="fork"),
        "VectorizedCage": lambda: VectorizedCage([CountingEnv] * 2),
        "Synchronized": lambda: make()[0],
    }
    with makers[kind]() as cage:
        assert not cage.has_policy
        with pytest.raises(WrongStateError, match=r"CountingEnv: rollout: this \w*Cage has no pol"):
            cage.start_rollout(3)


def test_wrong_moments_and_numbers() -> None:
    policy = partial(Replay, draw_columns())
    cage, samples = make(n_groups=2)
    columns = slice(FIRST, FIRST + N)
    with cage:
        cage.set_samples_buffer(samples, columns)
        run_groups(cage, "start_reset", 0)
        cage.set_policy(policy)
        assert cage.has_policy
        for method in ("start_rollout", "start_row"):  # nobody has told the policy of a buffer
            with pytest.raises(WrongStateError, match="no samples buffer was set"):
                getattr(cage, method)(1)
        cage.set_samples_buffer(samples, columns)
        for rows in (0, T + 1):
            with pytest.raises(
                ValueError, match=rf"rollout: T: expected a number from 1 to {T}, got {rows}"
            ):
                cage.start_rollout(rows)
        cage.start_rollout(T, 1)
        for start in (cage.start_rollout, cage.start_row):
            with pytest.raises(WrongStateError, match=f"rollout of {T} rows is not finished"):
                start(1, 1)
        with pytest.raises(WrongStateError, match=f"set_policy: rollout of {T} rows is not"):
            cage.set_policy(policy)
        cage.finish_row(1)
    with pytest.raises(ClosedError, match=r"used after close\(\)"):
        cage.start_rollout(T)


def test_a_rollout_before_a_reset() -> None:
    cage, samples = make()
    with cage:
        cage.set_policy(partial(Replay, draw_columns()))
        cage.set_samples_buffer(samples, slice(FIRST, FIRST + N))
        with pytest.raises(WrongStateError, match="stepped before a reset"):
            cage.start_rollout(T)


class NoStep:
    def bind(self) -> None: ...
    def start_batch(self) -> None: ...


def test_what_is_no_policy_leaves_the_cage_as_it_was() -> None:
    cage, _ = make(participate=True)
    with cage:
        with pytest.raises(TypeError, match=r"policy: expected an object with bind.*\['step'\]"):
            cage.set_policy(NoStep)  # type: ignore[arg-type]
        with pytest.raises(ScreamError, match="no idea"):
            cage.set_policy(scream)  # type: ignore[arg-type]
        lock = threading.Lock()
        with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock' object"):
            cage.set_policy(lambda: lock)  # type: ignore[arg-type, return-value]
        assert not cage.has_policy
        assert cage.gravity == [9.8] * N


class TroubleIn:
    """Make policies that are in trouble in one process, or one column, alone."""

    def __init__(self, column: int, row: int, what: Any) -> None:
        self.column, self.row, self.what = column, row, what

    def __call__(self) -> Replay:
        outer = self

        class Troubled(Replay):
            def start_batch(self) -> None:
                super().start_batch()
                if outer.column in self.columns:
                    self.trouble = outer.row, outer.what
                    if outer.row < 0:
                        outer.what()

        return Troubled(draw_columns())


@pytest.mark.parametrize("row", [-1, 0, 2])
@pytest.mark.parametrize("column", [FIRST, FIRST + N - 1])
@pytest.mark.parametrize("participate", [False, True])
def test_what_a_policy_raises_arrives_as_itself(row: int, column: int, participate: bool) -> None:
    in_main = participate and column > FIRST
    cage, _ = ready(TroubleIn(column, row, scream), participate=participate)
    pids = cage.pids
    with cage:
        with pytest.raises(ScreamError, match="no idea what to do") as caught:
            run_groups(cage, "start_rollout", T)
        said = notes_of(caught.value)
        assert f"in the policy, during {'start_batch' if row < 0 else f'row {row}'}" in said
        assert isinstance(caught.value.__cause__, WorkerTracebackError) != in_main
        assert ("worker" in said) != in_main
        assert all(wait_until_gone(pid) for pid in pids)
        with pytest.raises(ClosedError, match="ended after ScreamError"):
            cage.start_rollout(T)


def test_what_an_environment_raises_is_not_laid_on_the_policy() -> None:
    factories: list[Any] = [partial(CountingEnv, 9)] * N
    factories[1] = partial(FaultyEnv, "step", number=3, lengths=9)
    cage, _ = ready(partial(Replay, draw_columns()), factories=factories)
    with cage:
        with pytest.raises(DummyFaultError, match="step number 3") as caught:
            run_groups(cage, "start_rollout", T)
        said = notes_of(caught.value)
        assert "in environment 1 (CountingEnv), during step" in said
        assert "policy" not in said


@pytest.mark.parametrize(("participate", "wait"), [(False, "semaphore"), (True, None)])
def test_a_worker_that_is_killed_is_noticed_while_main_steps_on(
    participate: bool, wait: str | None
) -> None:
    # Main must not finish its share of a second and a half first.
    class Slow(Replay):
        def step(self, t: int) -> None:
            if FIRST in self.columns and t == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.3)
            super().step(t)

    cage, _ = ready(lambda: Slow(draw_columns()), participate=participate, wait=wait)
    pids = cage.pids
    with cage:
        cage.start_rollout(T)
        began = time.monotonic()
        with pytest.raises(WorkerDiedError, match=r"worker 0 .* killed by SIGKILL.*during rollout"):
            cage.finish_row()
        # The worker died in its second row; a row of main's is not interrupted.
        assert time.monotonic() - began < 0.3 + WITHIN_S
        assert all(wait_until_gone(pid) for pid in pids)


def test_the_time_of_a_rollout_is_counted_by_row() -> None:
    pause_s, timeout_s = 0.1, 0.3
    cage, _ = ready(lambda: Paused(pause_s, -1))
    with cage:
        set_timeout(cage, timeout_s)
        began = time.monotonic()
        run_groups(cage, "start_rollout", T)
        assert time.monotonic() - began > timeout_s  # and no error
    cage, _ = ready(lambda: Paused(0.0, 2))
    pids = cage.pids
    with cage:
        set_timeout(cage, timeout_s)
        with pytest.raises(
            WorkerTimeoutError, match=r"did not answer within 0\.3 s during rollout of 5 rows"
        ):
            run_groups(cage, "start_rollout", T)
        assert all(wait_until_gone(pid) for pid in pids)


class Paused(Replay):
    def __init__(self, pause_s: float, hangs_at: int) -> None:
        super().__init__(draw_columns())
        self.pause_s, self.hangs_at = pause_s, hangs_at

    def step(self, t: int) -> None:
        time.sleep(60 if t == self.hangs_at else self.pause_s)
        super().step(t)
