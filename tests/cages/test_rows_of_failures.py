"""What there is of a row in which an environment failed: the others' results, and nothing of earlier rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from cage_makers import synchronized

from parllel.cages import ProcessCage, VectorizedCage
from parllel.cages.workers import worker_pool
from parllel.errors import ClosedError, WorkerDiedError
from parllel.testing import CountingEnv, FaultyEnv
from parllel.testing.cages.cage_hooks import run_rows
from parllel.testing.cages.row_reference import make_samples
from parllel.testing.faulty_envs import DummyFaultError

T, N = 4, 6
FAILED, ROW = 4, 2  # the column and the row in which something happens
OLD = 99.0  # what the row held before
# Name -> options of the cage, columns that are in one process with the one that fails.
PLACES: dict[str, tuple[dict[str, Any], range]] = {
    "this process": ({}, range(N)),
    "a worker": ({"n_workers": 2}, range(3, N)),
    "main's share": ({"n_workers": 1, "participate": True, "n_main": 3}, range(3, N)),
}
EPISODES = {1: "one in each row", 3: "ends in the row of the failure", 9: "none"}


def make(place: str, fault: str | None, length: int, **env_options: Any) -> Any:
    factories: list[Any] = [partial(CountingEnv, length, end="truncated", **env_options)] * N
    if fault is not None:
        factories[FAILED] = partial(
            FaultyEnv, "step", fault, number=ROW + 1, lengths=length, end="truncated", **env_options
        )
    options = PLACES[place][0]
    if not options:
        return VectorizedCage(factories, seeds=range(N))
    return synchronized(factories, **options)


def bind(cage: Any, *, info: bool = True) -> Any:
    samples = make_samples(CountingEnv(), T, N, storage="managed", info=info)
    cage.set_samples_buffer(samples, slice(0, N))
    np.asarray(samples.agent.action)[...] = np.arange(T * N).reshape(T, N) % 4
    np.asarray(samples.env.reward)[ROW] = OLD
    np.asarray(samples.env.done)[ROW] = np.asarray(samples.env.truncated)[ROW] = True
    return samples


def run(cage: Any, rows: int) -> None:
    run_rows(cage, rows)


def summaries(trajs: list[Any]) -> list[tuple[int, float]]:
    return [(traj.length, traj.return_) for traj in trajs]


def sound(length: int) -> tuple[Any, list[list[tuple[int, float]]], list[Any]]:
    """Return samples, episodes by column, and final observations of rows 0 to ROW without a fault."""
    with make("this process", None, length) as cage:
        samples = bind(cage)
        run(cage, ROW + 1)
        trajs, per_column = summaries(cage.collect_completed_trajs()), (ROW + 1) // length
        by_column = [trajs[i * per_column : (i + 1) * per_column] for i in range(N)]
        return samples, by_column, cage.collect_final_observations()


@pytest.mark.parametrize("info", [False, True], ids=["quick", "with infos"])
@pytest.mark.parametrize("length", EPISODES, ids=EPISODES.values())
@pytest.mark.parametrize("place", PLACES)
def test_results_of_others_are_of_that_row(
    place: str, length: int, info: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, healthy workers may take longer than they are given.
    for name in ("SETTLE_S", "RESCUE_S"):
        monkeypatch.setattr(worker_pool, name, 20.0)
    expected, episodes, final = sound(length)
    with make(place, "raise", length) as cage:
        samples = bind(cage, info=info)
        with pytest.raises(DummyFaultError, match="step number 3"):
            run(cage, ROW + 1)
        trajs = summaries(cage.collect_completed_trajs())
        finals = cage.collect_final_observations()
        cage.close()
        with pytest.raises(ClosedError, match=r"used after close\(\)"):
            cage.collect_completed_trajs()
    stepped = [column for column in range(N) if column < FAILED]
    not_stepped = [column for column in range(N) if column > FAILED]
    reward, done, truncated = (
        np.asarray(getattr(samples.env, name)) for name in ("reward", "done", "truncated")
    )
    np.testing.assert_array_equal(reward[:ROW], np.asarray(expected.env.reward)[:ROW])
    np.testing.assert_array_equal(
        reward[ROW, stepped], np.asarray(expected.env.reward)[ROW, stepped]
    )
    assert np.isnan(reward[ROW, not_stepped]).all()
    assert reward[ROW, FAILED] == OLD  # nothing came of it
    np.testing.assert_array_equal(done[ROW, stepped], np.asarray(expected.env.done)[ROW, stepped])
    assert not done[ROW, not_stepped].any()
    assert not truncated[ROW, not_stepped].any()
    # Those that made no step have ended one episode less, if episodes end in that row.
    ends_here = (ROW + 1) % length == 0
    kept = [
        e if column in stepped or not ends_here else e[:-1] for column, e in enumerate(episodes)
    ]
    assert trajs == [episode for of_column in kept for episode in of_column]
    theirs = [one for one in final if one.row < ROW or one.column in stepped]
    assert sorted((one.row, one.column) for one in finals) == sorted(
        (one.row, one.column) for one in theirs
    )
    for one in finals:
        same = next(f for f in theirs if (f.row, f.column) == (one.row, one.column))
        np.testing.assert_array_equal(one.observation, same.observation)


def test_nothing_is_claimed_of_a_worker_that_hangs_while_main_fails() -> None:
    factories: list[Any] = [partial(CountingEnv, 9, end="truncated")] * N
    for column, fault in ((0, "hang"), (FAILED, "raise")):
        factories[column] = partial(
            FaultyEnv, "step", fault, number=ROW + 1, lengths=9, end="truncated"
        )
    with synchronized(factories, **PLACES["main's share"][0]) as cage:
        samples = bind(cage)
        with pytest.raises(DummyFaultError, match="step number 3"):
            run(cage, ROW + 1)
        # The worker's columns: nobody knows what their steps would have returned.
        assert np.isnan(np.asarray(samples.env.reward)[ROW, :3]).all()


def test_nothing_is_claimed_of_a_worker_that_died() -> None:
    expected, episodes, _ = sound(1)
    with make("a worker", "kill", 1) as cage:
        samples = bind(cage)
        with pytest.raises(WorkerDiedError, match="killed by SIGKILL"):
            run(cage, ROW + 1)
        trajs = summaries(cage.collect_completed_trajs())
        reward = np.asarray(samples.env.reward)
        np.testing.assert_array_equal(reward[ROW, :3], np.asarray(expected.env.reward)[ROW, :3])
        assert np.isnan(reward[ROW, 3:]).all()
        np.testing.assert_array_equal(reward[:ROW], np.asarray(expected.env.reward)[:ROW])
    assert trajs == [episode for of_column in episodes[:3] for episode in of_column]


@pytest.mark.parametrize("fault", ["raise", "kill"])
def test_a_process_cage_hands_over_what_it_has(fault: str) -> None:
    make_env = partial(FaultyEnv, "step", fault, number=ROW + 1, lengths=1, end="truncated")
    with ProcessCage(make_env, seed=0, start_method="fork", timeout_s=20.0) as cage:
        cage.set_samples_buffer(make_samples(CountingEnv(), T, 1, storage="managed"), slice(0, 1))
        with pytest.raises((DummyFaultError, WorkerDiedError), match=r"step number 3|SIGKILL"):
            run(cage, ROW + 1)
        lengths = [traj.length for traj in cage.collect_completed_trajs()]
        assert lengths == ([1] * ROW if fault == "raise" else [])
        finals = cage.collect_final_observations(truncated_only=True)
        assert [final.row for final in finals] == ([0, 1] if fault == "raise" else [])
        assert cage.collect_completed_trajs() == cage.collect_final_observations() == []
        with pytest.raises(ClosedError, match="ended after"):
            cage.start_row(0)
    with pytest.raises(ClosedError, match=r"used after close\(\)"):
        cage.collect_completed_trajs()
