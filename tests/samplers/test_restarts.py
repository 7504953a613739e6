"""Processes of environments die in the middle of a batch, and are restarted."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from crashing_env import CrashingEnv
from gymnasium.vector import SyncVectorEnv
from private_memory import private_memory
from start_methods import SENT_SPAWN_SOAKS

from parllel import BatchSpec
from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import Cage, ProcessCage, SynchronizedProcessCage, VectorEnvFactory
from parllel.cages.workers.restarts import restart_seed
from parllel.distributed.rollouts import SynchronousSchedule
from parllel.errors import RestartsUsedUpError, WorkerDiedError
from parllel.samplers import (
    AlternatingSampler,
    AsynchronousSampler,
    BasicSampler,
    FullEpisodeSampler,
)
from parllel.system.processes import RestartBudget
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_faults_contract import wait_until_gone
from parllel.testing.dummy_agents import CountingAgent, RecurrentCountingAgent
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel.transforms import (
    EstimateAdvantage,
    NormalizeAdvantage,
    NormalizeRewards,
)
from parllel.transforms.returns import DiscountedReturns
from parllel_patterns import allocate_samples, build_eval_sampler, build_sampler

T, B, BATCHES = 8, 4, 3
SEED = 1
CRASHED = 1  # the column whose environment crashes
FIELDS = ("observation", "reward", "terminated", "truncated", "done", "valid", "aborted")
DEATHS = ("exit", "kill", "segfault", "hang", "stop")
ENVS: dict[str, Any] = {"lengths": (3, 5), "end": "alternate"}


def budget(most: int = 3) -> RestartBudget:
    return RestartBudget(most, 1e6, 0.0, 0.0)


def one_each(factories: Any, restarts: Any, timeout_s: float, **options: Any) -> list[Any]:
    return [
        ProcessCage(
            factory,
            seed=i,
            index=i,
            restarts=restarts,
            timeout_s=timeout_s,
            start_method="fork",
            **options,
        )
        for i, factory in enumerate(factories)
    ]


def pool(factories: Any, restarts: Any, timeout_s: float, **options: Any) -> list[Any]:
    cage = SynchronizedProcessCage(
        factories,
        seeds=range(len(factories)),
        restarts=restarts,
        timeout_s=timeout_s,
        start_method="fork",
        **options,
    )
    return [cage]


# For each kind of cage: the function, and the columns that share a process with the crashing one.
KINDS: dict[str, tuple[Any, list[int]]] = {
    "ProcessCages": (one_each, [1]),
    "one worker each": (partial(pool, n_workers=4), [1]),
    "two workers": (partial(pool, n_workers=2), [0, 1]),
    "two groups": (partial(pool, n_workers=2, n_groups=2), [1, 3]),
}


def factories(folder: Path | None, *, envs: dict[str, Any] = ENVS, **crash: Any) -> list[Any]:
    make = partial(CountingEnv, **envs)
    made: list[Any] = [make] * B
    if folder is not None:
        made[CRASHED] = partial(CrashingEnv, make, folder, **crash)
    return made


def built(
    kind: str, makes: list[Any], *, most: int = 3, timeout_s: float = 20.0, **more: Any
) -> Any:
    recurrent = more.pop("recurrent", False)
    options = {"reset_automatically": False} if recurrent else {}
    cages = KINDS[kind][0](makes, budget(most), timeout_s, **options)
    agent = RecurrentCountingAgent(4, n_envs=B) if recurrent else CountingAgent(4)
    return build_sampler(BatchSpec(T, B), cages, NumpyHandler(agent), **more)


def collect(sampler: Any, batches: int = BATCHES) -> list[dict[str, Any]]:
    found = []
    with sampler:
        for _ in range(batches):
            samples, trajs = sampler.collect_batch(0)
            batch = {name: np.array(getattr(samples.env, name)) for name in FIELDS}
            batch |= {
                "action": np.array(samples.agent.action),
                "value": np.array(samples.agent.agent_info.value),
                "after": np.array(samples.env.observation[T]),
                "returns": [traj.return_ for traj in trajs],
                **sampler.stats,
            }
            for name in ("advantage", "return_", "final_value"):
                if getattr(samples.agent, name, None) is not None:
                    batch[name] = np.array(getattr(samples.agent, name))
            found.append(batch)
    return found


def stacked(batches: list[dict[str, Any]], name: str) -> Any:
    return np.concatenate([batch[name] for batch in batches])


def assert_siblings_equal(found: list[Any], expected: list[Any], shared: list[int]) -> None:
    others = [b for b in range(B) if b not in shared]
    for name in (*FIELDS, "action", "value"):
        assert (stacked(found, name)[:, others] == stacked(expected, name)[:, others]).all(), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", DEATHS)
@pytest.mark.few(4)
def test_only_the_row_of_the_death_is_lost(kind: str, fault: str, tmp_path: Path) -> None:
    at = 5  # the second step of its second episode
    timeout_s = 0.5 if fault in ("hang", "stop") else 20.0
    makes = factories(tmp_path, fault=fault, at=at)
    found = collect(built(kind, makes, timeout_s=timeout_s))
    expected = collect(built(kind, factories(None)))
    shared = KINDS[kind][1]
    assert_siblings_equal(found, expected, shared)
    valid = stacked(found, "valid")
    assert np.argwhere(~valid).tolist() == [[at - 1, b] for b in shared]
    for b in shared:
        for name in ("reward", "terminated", "truncated", "done"):
            assert not stacked(found, name)[at - 1, b]
        # The row before is the end of the episode.
        assert stacked(found, "truncated")[at - 2, b]
        assert stacked(found, "done")[at - 2, b]
        assert np.argwhere(stacked(found, "aborted")[:, b]).tolist() == [[at - 2]]
    for name in ("observation", "reward", "action"):
        before = stacked(found, name)[: at - 1, CRASHED]
        assert (before == stacked(expected, name)[: at - 1, CRASHED]).all()
    # From then on, the episodes of an environment with another seed.
    reference = Cage(partial(CountingEnv, **ENVS), seed=restart_seed(CRASHED, 1))
    with reference:
        reference.reset_async()
        observation = reference.await_step().observation
        for t in range(at, T * BATCHES):
            assert (stacked(found, "observation")[t, CRASHED] == observation).all()
            reference.step_async(stacked(found, "action")[t, CRASHED])
            step = reference.await_step()
            assert stacked(found, "reward")[t, CRASHED] == step.reward
            observation = step.observation
    assert found[-1]["restarts"] == 1
    assert found[-1]["crashed_episodes"] == len(shared)
    # Its episodes are in no mean: not the one that crashed, and not with a reward of zero.
    assert all(np.isfinite(batch["returns"]).all() for batch in found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_nothing_is_learned_from_a_lost_row(kind: str, tmp_path: Path) -> None:
    discount, lambda_ = 0.5, 0.75
    transforms: Any = [EstimateAdvantage(discount, lambda_)]
    makes = factories(tmp_path, at=5)
    (batch,) = collect(built(kind, makes, batch_transforms=transforms), 1)
    # An independent estimate, over the valid rows of each column.
    for b in range(B):
        rows = np.flatnonzero(batch["valid"][:, b]).tolist()
        for k, t in enumerate(rows):
            total, weight = 0.0, 1.0
            for s in rows[k:]:
                lost = s + 1 < T and not batch["valid"][s + 1, b]
                end = bool(batch["terminated"][s, b])
                cut = bool(batch["truncated"][s, b]) and not end
                if end:
                    after = 0.0
                elif lost:
                    after = batch["value"][s + 1, b]
                elif cut:
                    after = batch["final_value"][s, b]
                elif s + 1 < T:
                    after = batch["value"][s + 1, b]
                else:
                    after = CountingAgent(4).value(batch["after"])[b]
                total += weight * (batch["reward"][s, b] + discount * after - batch["value"][s, b])
                weight *= discount * lambda_
                if end or cut or lost:
                    break
            np.testing.assert_allclose(batch["advantage"][t, b], total, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_a_death_in_the_first_row_of_a_batch_makes_transforms_forget(
    kind: str, tmp_path: Path
) -> None:
    long: dict[str, Any] = {"lengths": 100}
    makes = factories(tmp_path, envs=long, at=T + 1)
    transform = NormalizeRewards(0.9)
    sampler = built(
        kind,
        makes,
        batch_transforms=[transform, EstimateAdvantage(0.9, 0.9, "env.normalized_reward")],
    )
    found = collect(sampler, 2)
    shared = KINDS[kind][1]
    assert np.argwhere(~found[1]["valid"]).tolist() == [[0, b] for b in shared]
    assert not found[1]["aborted"].any()
    assert not found[1]["done"].any()
    reward, total = stacked(found, "reward"), np.zeros(B)
    for t in range(2 * T):
        total = 0.9 * total + reward[t]
        if t == T:
            total[shared] = 0.0
    np.testing.assert_allclose(transform.state()["carried"], total, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_steps_before_final_observations_that_were_lost_are_lost_too(
    kind: str, tmp_path: Path
) -> None:
    cut: dict[str, Any] = {"lengths": 3, "end": "truncated"}
    makes = factories(tmp_path, envs=cut, at=5)
    (batch,) = collect(built(kind, makes, batch_transforms=[EstimateAdvantage(0.9, 0.9)]), 1)
    for b in KINDS[kind][1]:
        # The time limit of row 2, whose last observation the process had not delivered, and row 4.
        assert np.flatnonzero(~batch["valid"][:, b]).tolist() == [2, 4]
        assert np.flatnonzero(batch["aborted"][:, b]).tolist() == [1, 3]
        assert batch["final_value"][1, b] == batch["value"][2, b]
        assert batch["final_value"][3, b] == batch["value"][4, b]
        ends = np.flatnonzero(batch["truncated"][:, b]).tolist()
        assert ends == [1, 3, 7]
        assert batch["final_value"][7, b] == CountingAgent(4).value(
            # The observation of a step counts it in the last place.
            batch["observation"][7, [b]] + [0, 0, 1]
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_recurrent_sampler_ends_the_column(kind: str, tmp_path: Path) -> None:
    transforms: Any = {"batch_transforms": [EstimateAdvantage(0.9, 0.9), NormalizeAdvantage()]}
    envs: dict[str, Any] = {"lengths": (20, 6)}
    makes = factories(tmp_path, envs=envs, at=4)
    found = collect(built(kind, makes, recurrent=True, **transforms))
    expected = collect(built(kind, factories(None, envs=envs), recurrent=True, **transforms))
    shared = KINDS[kind][1]
    assert_siblings_equal(found[:1], expected[:1], shared)
    first = found[0]
    for b in shared:
        assert np.flatnonzero(first["valid"][:, b]).tolist() == [0, 1, 2]
        assert np.flatnonzero(first["truncated"][:, b]).tolist() == [2]
        assert np.flatnonzero(first["aborted"][:, b]).tolist() == [2]
        assert not first["reward"][3:, b].any()
        assert not first["action"][3:, b].any()
        # A new episode at the start of the next batch.
        assert found[1]["valid"][:, b].all()
        assert found[1]["observation"][0, b].tolist()[1:] == [0.0, 0.0]
    assert found[-1]["crashed_episodes"] == len(shared)


def test_recurrent_sampler_samples_again_if_all_die_in_the_first_row(tmp_path: Path) -> None:
    makes = []
    for b in range(B):
        (tmp_path / str(b)).mkdir()
        make = partial(CountingEnv, 20)
        makes.append(partial(CrashingEnv, make, tmp_path / str(b), at=1))
    found = collect(built("ProcessCages", makes, most=B, recurrent=True), 2)
    assert found[0]["valid"].all()
    assert found[0]["crashed_episodes"] == B


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.few(3)
def test_a_death_between_two_batches_loses_no_row(
    kind: str, recurrent: bool, tmp_path: Path
) -> None:
    sampler = built(kind, factories(None, envs={"lengths": 100}), recurrent=recurrent)
    with sampler:
        sampler.collect_batch(0)
        cage = sampler.cages.cages[min(1, len(sampler.cages.cages) - 1)]
        pid = cage.pid if isinstance(cage, ProcessCage) else cage.pids[0]
        os.kill(pid, signal.SIGKILL)
        assert wait_until_gone(pid)
        state = sampler.state()  # a checkpoint notices it too
        samples, _ = sampler.collect_batch(0)
        assert np.asarray(samples.env.valid).all()
        steps = np.asarray(samples.env.observation)[0, :, 2]
        begun = np.flatnonzero(steps == 0)
        assert len(begun) in (1, 2)
        assert steps.max() == T
        assert sampler.stats["restarts"] == 1
        assert len(state["environments"]) == B
        assert sampler.stats["crashed_episodes"] == len(begun)
        assert "1 restarts" in sampler.overview()
        assert "SIGKILL" in sampler.overview()


@pytest.mark.parametrize("kind", ["ProcessCages", "two workers"])
def test_a_checkpoint_after_a_death_begins_new_episodes(kind: str) -> None:
    make: list[Any] = [partial(gym.make, "CartPole-v1")] * B

    def sampler() -> Any:
        cages = KINDS[kind][0](make, budget(), 20.0)
        handler = NumpyHandler(RandomAgent(cages[0].spaces.action, seed=3))
        return build_sampler(BatchSpec(3, B), cages, handler)

    with sampler() as first, sampler() as second:
        first.collect_batch(0)
        cage = first.cages.cages[0]
        pid = cage.pid if isinstance(cage, ProcessCage) else cage.pids[0]
        os.kill(pid, signal.SIGKILL)
        assert wait_until_gone(pid)
        second.load_state(first.state())
        assert not first.unsaved_environments
        for one in (first, second):
            one.handler.agent.load_state(RandomAgent(cage.spaces.action, seed=4).state())
        batches = [one.collect_batch(0)[0] for one in (first, second)]
        for name in ("observation", "reward", "valid"):
            ours, theirs = (np.asarray(getattr(batch.env, name)) for batch in batches)
            assert (ours == theirs).all(), name
        assert np.asarray(batches[1].env.valid).all()


@pytest.mark.parametrize("phase", ["reset", "decorrelation"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(3)
def test_deaths_in_resets_and_random_steps(kind: str, phase: str, tmp_path: Path) -> None:
    crash = {"phase": "reset"} if phase == "reset" else {"at": 2}
    makes = factories(tmp_path, envs={"lengths": 100}, **crash)
    more: dict[str, Any] = {}
    if phase == "decorrelation":
        more = {"decorrelation_steps": 20, "decorrelation_seed": SEED}
        assert np.random.default_rng(SEED).integers(0, 21, B)[CRASHED] >= 2
    (batch,) = collect(built(kind, makes, **more), 1)
    assert batch["valid"].all()
    assert batch["restarts"] == 1
    assert batch["crashed_episodes"] == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_a_used_up_budget_names_environment_and_reasons(kind: str, tmp_path: Path) -> None:
    makes = factories(tmp_path, at=2, times=100)
    before = set(psutil.Process().children(recursive=True))
    sampler = built(kind, makes, most=2)
    pids = [pid for cage in sampler.cages.cages for pid in getattr(cage, "pids", [0])]
    with pytest.raises(RestartsUsedUpError) as error:
        collect(sampler, 10)
    named = ", ".join(str(b) for b in KINDS[kind][1])
    assert f"{named}: 2 restarts within" in str(error.value)
    assert str(error.value).count("exited with code 3") == 3
    assert all(wait_until_gone(pid) for pid in pids if pid)
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_stay_errors(kind: str) -> None:
    makes: list[Any] = [CountingEnv] * B
    makes[CRASHED] = partial(FaultyEnv, "step", "raise", number=3)
    with pytest.raises(DummyFaultError):
        collect(built(kind, makes))


def test_without_restarts_a_death_is_an_error(tmp_path: Path) -> None:
    cages = one_each(factories(tmp_path, at=3), None, 20.0)
    handler = NumpyHandler(CountingAgent(4))
    with build_sampler(BatchSpec(T, B), cages, handler) as sampler:
        assert "valid" not in sampler.samples.env._fields
        with pytest.raises(WorkerDiedError, match="exited with code 3"):
            sampler.collect_batch(0)


# For the column that crashes, which cells are lost: while the second half steps in row t, the worker of both
# has begun row t + 1 of the first.
ALTERNATING = {1: [[4, 1], [4, 3]], 3: [[4, 3], [5, 1]]}


@pytest.mark.parametrize("column", ALTERNATING)
def test_alternating_sampler_of_two_groups(column: int, tmp_path: Path) -> None:
    make = partial(CountingEnv, **ENVS)
    makes: list[Any] = [make] * B
    expected = collect(built("two groups", makes, sampler_class=AlternatingSampler))
    makes[column] = partial(CrashingEnv, make, tmp_path, at=5)
    found = collect(built("two groups", makes, sampler_class=AlternatingSampler))
    assert np.argwhere(~stacked(found, "valid")).tolist() == ALTERNATING[column]
    assert_siblings_equal(found, expected, [1, 3])
    assert found[-1]["restarts"] == 1
    assert found[-1]["crashed_episodes"] == 2


def test_alternating_sampler_loses_the_next_row_of_an_idle_half(tmp_path: Path) -> None:
    make = partial(CountingEnv, 100)
    makes: list[Any] = [make] * B
    # In the last row of the batch, after the first half has finished it.
    makes[3] = partial(CrashingEnv, make, tmp_path, at=T)
    found = collect(built("two groups", makes, sampler_class=AlternatingSampler), 2)
    assert np.argwhere(~stacked(found, "valid")).tolist() == [[T - 1, 3], [T, 1]]
    assert np.argwhere(stacked(found, "aborted")).tolist() == [[T - 2, 3]]
    assert found[-1]["crashed_episodes"] == 2


def test_alternating_sampler_of_process_cages(tmp_path: Path) -> None:
    makes = factories(tmp_path, at=5)
    found = collect(built("ProcessCages", makes, sampler_class=AlternatingSampler))
    assert np.argwhere(~stacked(found, "valid")).tolist() == [[4, CRASHED]]


@pytest.mark.parametrize("automatic", [True, False])
def test_native_vector_environments(automatic: bool, tmp_path: Path) -> None:
    make = partial(CountingEnv, 20)

    def make_vector(n: int, crash: bool = True) -> SyncVectorEnv:
        # Of three environments in two workers, one worker has two.
        last = partial(CrashingEnv, make, tmp_path, at=4) if n == 2 and crash else make
        return SyncVectorEnv([*[make] * (n - 1), last])

    found = []
    for crash in (True, False):
        cage = SynchronizedProcessCage(
            VectorEnvFactory(partial(make_vector, crash=crash)),
            n=3,
            n_workers=2,
            seeds=range(3),
            restarts=budget(),
            start_method="fork",
            reset_automatically=automatic,
        )
        sampler = build_sampler(BatchSpec(T, 3), [cage], NumpyHandler(CountingAgent(4)))
        found.append(collect(sampler, 2))
    lost = found[0][0]["valid"]
    if automatic:
        assert np.argwhere(~lost).tolist() == [[3, 0], [3, 1]]
    else:
        assert np.argwhere(~lost[:, 2]).tolist() == []
        assert lost[:, :2].sum(axis=0).tolist() == [3, 3]
    for name in ("observation", "reward", "valid", "done"):
        ours, expected = (stacked(batches, name)[:, 2] for batches in found)
        assert (ours == expected).all(), name
    assert found[0][1]["valid"].all()
    assert found[0][1]["restarts"] == 1


@pytest.mark.parametrize("kind", ["ProcessCages", "two workers"])
def test_asynchronous_sampler(kind: str, tmp_path: Path) -> None:
    make = partial(built, kind, factories(tmp_path, at=5), switching=True)
    with AsynchronousSampler(make, start_method="fork") as sampler:
        samples, _ = sampler.collect_batch(0)
        shared = KINDS[kind][1]
        assert np.argwhere(~np.asarray(samples.env.valid)).tolist() == [[4, b] for b in shared]
        assert sampler.count_steps(samples) == T * B - len(shared)
        assert sampler.stats["restarts"] == 1
        assert sampler.overview() == f"1 restarts, {len(shared)} crashed episodes"


@pytest.mark.parametrize("method", SENT_SPAWN_SOAKS)
def test_other_start_methods(method: str, tmp_path: Path) -> None:
    makes = []
    for name in ("pool", "cage"):
        (tmp_path / name).mkdir()
        makes.append(partial(CrashingEnv, CountingEnv, tmp_path / name, at=3))
    start: dict[str, Any] = {"start_method": method, "restarts": budget()}
    cages: list[Any] = [
        SynchronizedProcessCage([CountingEnv, makes[0]], n_workers=2, seeds=[0, 1], **start),
        ProcessCage(makes[1], index=2, seed=2, **start),
    ]
    with build_sampler(BatchSpec(T, 3), cages, NumpyHandler(CountingAgent(4))) as sampler:
        samples, _ = sampler.collect_batch(0)
        assert np.argwhere(~np.asarray(samples.env.valid)).tolist() == [[2, 1], [2, 2]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_evaluations_do_not_count_crashed_episodes(kind: str, tmp_path: Path) -> None:
    envs: dict[str, Any] = {"lengths": 5}
    training = built(kind, factories(None, envs=envs))
    cages = KINDS[kind][0](factories(tmp_path, envs=envs, at=4, times=2), budget(), 20.0)
    with training, build_eval_sampler(cages, training, 2 * B) as sampler:
        _, trajs = sampler.collect_batch(0)
        assert [traj.length for traj in trajs] == [5] * (2 * B)
        assert sum(cage.restarts for cage in cages) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(1)
def test_many_deaths_leave_nothing_behind(kind: str, tmp_path: Path) -> None:
    deaths = 40
    makes = factories(tmp_path, envs={"lengths": 7}, at=4, times=deaths)
    sampler = built(kind, makes, most=deaths)
    held = []
    with sampler:
        while (restarts := sampler.stats["restarts"]) < deaths:
            sampler.collect_batch(0)
            if restarts >= 5:
                held.append((private_memory(), psutil.Process().num_fds()))
        # Until the first of several samples, caches and the allocator's reserve grow.
        assert held[-1][1] <= held[0][1]
        assert held[-1][0] - held[0][0] < 4 * 2**20
        assert sampler.stats["crashed_episodes"] == deaths * len(KINDS[kind][1])


def test_refusals() -> None:
    cages = one_each([CountingEnv] * 2, budget(), 20.0)
    cages += pool([CountingEnv] * 2, budget(), 20.0, n_workers=1)
    handler = NumpyHandler(CountingAgent(4))
    spec = BatchSpec(4, 2)
    try:
        with pytest.raises(ValueError, match=r"expected no field env\.next_observation"):
            build_sampler(spec, cages[:2], handler, next_observation=True)
        plain = one_each([CountingEnv] * 2, None, 20.0)
        samples = allocate_samples(plain, spec, handler)
        for cage in plain:
            cage.close()
        with pytest.raises(ValueError, match=r"expected a field env\.valid, bool"):
            BasicSampler(spec, cages[:2], handler, samples)
        with pytest.raises(ValueError, match=r"DiscountedReturns: .* has skips_invalid = False"):
            build_sampler(spec, cages[:2], handler, (), [DiscountedReturns(0.9, value=None)])
        samples = allocate_samples(cages[:2], spec, handler)
        with pytest.raises(ValueError, match="FullEpisodeSampler: cage 0"):
            FullEpisodeSampler(spec, cages[:2], handler, samples)
        with (
            build_sampler(spec, one_each([CountingEnv] * 2, budget(), 20.0), handler) as sampler,
            pytest.raises(ValueError, match="SynchronousSchedule: cage 0"),
        ):
            SynchronousSchedule(sampler)
        with pytest.raises(TypeError, match="restarts: expected a RestartBudget or None, got 3"):
            ProcessCage(CountingEnv, restarts=3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="restarts: expected None with infos=True"):
            ProcessCage(CountingEnv, infos=True, restarts=budget())
        for wrong, options in (
            ("participate=True", {"participate": True, "n_main": 1}),
            ('wait="semaphore"', {"wait": "semaphore"}),
        ):
            with pytest.raises(ValueError, match=f"restarts: expected None with {wrong}"):
                pool([CountingEnv] * 2, budget(), 20.0, n_workers=1, **options)
        with pytest.raises(ValueError, match="set_policy: expected a cage without restarts"):
            cages[2].set_policy(lambda: None)
    finally:
        for cage in cages:
            cage.close()


def test_a_pause_of_the_budget_is_awaited(tmp_path: Path) -> None:
    cage = ProcessCage(
        factories(tmp_path, at=1)[CRASHED],
        restarts=RestartBudget(1, 1e6, 0.2, 0.2),
        start_method="fork",
    )
    with build_sampler(BatchSpec(2, 1), [cage], NumpyHandler(CountingAgent(4))) as sampler:
        began = time.monotonic()
        sampler.collect_batch(0)
        assert time.monotonic() - began >= 0.2


class Killer(threading.Thread):
    """Kills a random worker of a sampler every few milliseconds."""

    def __init__(self, cages: list[Any], kills: int, seed: int) -> None:
        super().__init__()
        self.cages, self.left, self.random = cages, kills, random.Random(seed)

    def run(self) -> None:
        while self.left:
            time.sleep(self.random.uniform(0.0, 0.05))
            cage = self.random.choice(self.cages)
            pid = cage.pid if isinstance(cage, ProcessCage) else self.random.choice(cage.pids)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.left -= 1


def assert_consistent(batches: list[dict[str, Any]], waits: bool) -> None:
    """Check that each column consists of whole steps of episodes, one after the other."""
    for b in range(B):
        # What the next observation must be: of this episode, the first of another, or either.
        expected: Any = "any"
        for batch in batches:
            for t in range(T):
                observation, valid = batch["observation"][t, b], batch["valid"][t, b]
                mark, _, step = observation.tolist()
                if not valid:
                    # The last observation of the episode, unless its environment waits.
                    if not waits:
                        assert expected in ("any", "first", observation.tolist())
                    expected = "first"
                    continue
                if expected == "first":
                    assert step == 0, (b, t)
                elif expected != "any":
                    assert observation.tolist() == expected, (b, t)
                action = batch["action"][t, b]
                assert batch["reward"][t, b] == step + 1 + action / 8
                expected = [mark, batch["observation"][t, b].tolist()[1], step + 1]
                if batch["done"][t, b]:
                    expected = "first"
            # An environment may have died between two batches.
            if expected != "first":
                expected = "any"


@pytest.mark.parametrize("trials", [15, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ProcessCages", {}),
        ("ProcessCages", {"recurrent": True}),
        ("two workers", {}),
        ("two groups", {"sampler_class": AlternatingSampler}),
        ("one worker each", {"recurrent": True}),
    ],
)
@pytest.mark.few(2)
def test_workers_killed_at_any_moment(kind: str, options: dict[str, Any], trials: int) -> None:
    envs = {"lengths": (30, 4, 9), "end": "alternate"}
    transforms: Any = [EstimateAdvantage(0.9, 0.9)]
    sampler = built(
        kind, factories(None, envs=envs), most=10**6, batch_transforms=transforms, **options
    )
    batches = []
    with sampler:
        sampler.collect_batch(0)
        killer = Killer(sampler.cages.cages, trials, seed=len(kind))
        killer.start()
        while killer.is_alive():
            samples, trajs = sampler.collect_batch(0)
            assert all(traj.length in envs["lengths"] for traj in trajs)
            batch = {name: np.array(getattr(samples.env, name)) for name in FIELDS}
            batch["action"] = np.array(samples.agent.action)
            # At the ends that crashes made, the value is that of the observation that followed.
            for t, b in np.argwhere(batch["aborted"]).tolist():
                value = np.asarray(samples.agent.agent_info.value)
                final = np.asarray(samples.agent.final_value)[t, b]
                assert options or final == value[t + 1, b]
            batches.append(batch)
            sampler.state()
        killer.join()
        assert 0 < sampler.stats["restarts"] <= trials
    assert_consistent(batches, "recurrent" in options)
