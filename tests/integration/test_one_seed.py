"""A whole number is the seed of an environment's first reset, by whatever way the environment is reached."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from parllel.cages import (
    Cage,
    ProcessCage,
    SynchronizedProcessCage,
    VectorEnvFactory,
    VectorizedCage,
)
from parllel.policies import play_episodes
from parllel.policies.basic_policies import ConstantPolicy
from parllel.testing.cages.row_reference import make_samples, plain

LENGTH, T = 4, 11  # two episodes, and part of a third
SEEDS = [9001, 7, 2**31 - 2]
FORKED: dict[str, Any] = {"start_method": "fork", "timeout_s": 20.0}


class Dice(gym.Env[Any, Any]):
    """Observes and pays draws of its generator."""

    observation_space = spaces.Box(0, 2**20, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = LENGTH
        return self._roll(), {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        observation = self._roll()
        return observation, float(observation[0]), not self._left, False, {}

    def _roll(self) -> Any:
        return self.np_random.integers(2**20, size=3).astype(np.float32)


def plain_loop(seed: int) -> tuple[list[Any], list[float]]:
    """Return the T + 1 observations and T rewards of a loop over the environment itself."""
    env = Dice()
    observations, rewards = [env.reset(seed=seed)[0].tolist()], []
    for _ in range(T):
        observation, reward, terminated, _, _ = env.step(0)
        observations.append((env.reset()[0] if terminated else observation).tolist())
        rewards.append(reward)
    return observations, rewards


def rows_of(cage: Any) -> list[tuple[list[Any], list[float]]]:
    """Return what `plain_loop` does for each column of a batch, and close the cage."""
    with cage:
        B = cage.n
        samples = make_samples(Dice(), T, B, storage="managed", info=False)
        cage.set_samples_buffer(samples, slice(0, B))
        cage.start_reset(0)
        cage.finish_row()
        for t in range(T):
            cage.start_row(t)
            cage.finish_row()
        env = samples.env
        return [
            (
                [plain(env.observation, t, b).tolist() for t in range(T + 1)],
                [float(plain(env.reward, t, b)) for t in range(T)],
            )
            for b in range(B)
        ]


def vector_env(n: int, mode: str = "SameStep", kind: Any = SyncVectorEnv) -> Any:
    return kind([Dice] * n, autoreset_mode=mode)


CAGES: dict[str, Callable[[list[Any]], Any]] = {
    "vectorized": lambda seeds: VectorizedCage([Dice] * 3, seeds=seeds),
    "synchronized": lambda seeds: SynchronizedProcessCage(
        [Dice] * 3, n_workers=2, participate=True, n_main=1, seeds=seeds, **FORKED
    ),
    "native": lambda seeds: VectorizedCage(VectorEnvFactory(vector_env), seeds=seeds),
    "native, next step": lambda seeds: VectorizedCage(
        VectorEnvFactory(partial(vector_env, mode="NextStep")), seeds=seeds
    ),
    "native, asynchronous": lambda seeds: VectorizedCage(
        VectorEnvFactory(partial(vector_env, kind=partial(AsyncVectorEnv, shared_memory=False))),
        seeds=seeds,
    ),
    "native, in workers": lambda seeds: SynchronizedProcessCage(
        VectorEnvFactory(vector_env), n=3, n_workers=2, seeds=seeds, **FORKED
    ),
}
CAGES_OF_ONE: dict[str, Callable[[Any], Any]] = {
    "cage": lambda seed: Cage(Dice, seed=seed),
    "process": lambda seed: ProcessCage(Dice, seed=seed, **FORKED),
    "native, one by one": lambda seed: Cage(VectorEnvFactory(vector_env), seed=seed),
}


@pytest.mark.parametrize("kind", CAGES)
def test_cages_play_the_episodes_of_their_seeds(kind: str) -> None:
    assert rows_of(CAGES[kind]([*SEEDS[:2], np.int64(SEEDS[2])])) == [*map(plain_loop, SEEDS)]


@pytest.mark.parametrize("kind", CAGES_OF_ONE)
@pytest.mark.parametrize("seed", [9001, np.int64(7), 2**40])
def test_cages_of_one_environment_play_the_episodes_of_their_seed(kind: str, seed: Any) -> None:
    assert rows_of(CAGES_OF_ONE[kind](seed)) == [plain_loop(int(seed))]


@pytest.mark.parametrize("kind", ["cage", "process"])
def test_steps_without_a_batch_are_those_of_the_seed(kind: str) -> None:
    with CAGES_OF_ONE[kind](9001) as cage:
        cage.reset_async()
        found = [cage.await_step().observation.tolist()]
        for _ in range(T):
            cage.step_async(0)
            found.append(cage.await_step().observation.tolist())
    assert found == plain_loop(9001)[0]


def test_one_native_environment_with_one_generator_is_reset_with_the_seed() -> None:
    make = partial(gym.make_vec, "CartPole-v1", vectorization_mode="vector_entry_point")
    expected = make(num_envs=1).reset(seed=9001)[0]
    cage = VectorizedCage(VectorEnvFactory(lambda n: make(num_envs=n)), seeds=[9001])
    samples = make_samples(gym.make("CartPole-v1"), T, 1, info=False)
    with cage:
        cage.set_samples_buffer(samples, slice(0, 1))
        cage.start_reset(0)
        cage.finish_row()
        np.testing.assert_array_equal(plain(samples.env.observation, 0, 0), expected[0])


def test_sequences_are_what_they_were() -> None:
    """Published runs have their seeds from `Seeds`."""
    sequence = np.random.SeedSequence(9001)
    word = int(sequence.generate_state(2)[0])
    assert rows_of(Cage(Dice, seed=sequence)) == [plain_loop(word)]


def test_rollout_workers_play_the_episodes_of_their_seed() -> None:
    from parllel.distributed.rollouts import EnvWorker

    with EnvWorker(Dice, seed=9001, **FORKED) as worker:
        assert rows_of(worker.cage) == [plain_loop(9001)]


@pytest.mark.parametrize("n_envs", [1, 2])
def test_policies_play_the_episodes_of_the_seeds(n_envs: int) -> None:
    policy = ConstantPolicy(0, Dice.action_space)
    found = play_episodes(policy, Dice, SEEDS, n_envs=n_envs)
    assert [one.traj.return_ for one in found] == [sum(plain_loop(s)[1][:LENGTH]) for s in SEEDS]


@pytest.fixture
def registered() -> Iterator[str]:
    gym.register("OneSeedDice-v0", cast("Any", Dice))
    yield "OneSeedDice-v0"
    del gym.registry["OneSeedDice-v0"]


def test_remote_episodes_are_those_of_the_seed(registered: str) -> None:
    pytest.importorskip("msgspec", reason="the extra `remote` is not installed")
    from parllel.distributed.remote import make

    expected, rewards = plain_loop(9001)
    with make(f"gymnasium/{registered}", {"seed": 9001}) as env:
        env.run([lambda observation: 0])
        found = [np.asarray(step[0]["observation"]["observation"]).tolist() for step in env.steps]
        assert found[:LENGTH] == expected[:LENGTH]
        assert env.state[0]["reward"] == sum(rewards[:LENGTH])


def test_operators_play_the_episodes_of_the_seed() -> None:
    pytest.importorskip("msgspec", reason="the extra `operators` is not installed")
    from parllel.distributed.operators.workers.interactive_runtime import InteractiveRuntime

    runtime = InteractiveRuntime(lambda observation: 0, Dice)
    runtime.bind()
    runtime.answer(b'{"cmd": "reset", "seed": 9001}')
    replies = [runtime.answer(b'{"cmd": "step"}').splitlines()[0] for _ in range(LENGTH)]
    runtime.close()
    found = [json.loads(reply)["reward"] for reply in replies]
    assert found == plain_loop(9001)[1][:LENGTH]


def test_environments_of_agents_are_reset_with_the_seed() -> None:
    pytest.importorskip("msgspec", reason="the extra `kafka` is not installed")
    from parllel.distributed.messaging import Agent, VectorizedKafkaEnv

    class Roller(Agent):
        def observe(self, state: Any) -> Any:
            return self.np_random.integers(2**20, size=3).astype(np.float32)

    def made(n: int) -> Any:
        spaces_of: dict[str, Any] = {
            "observation_space": Dice.observation_space,
            "action_space": spaces.Discrete(2),
        }
        return VectorizedKafkaEnv(
            lambda env_id: {"roller": Roller("roller", **spaces_of)}, ["roller"], n
        )

    seeds = [9001, 7, 3]
    envs = made(3)
    expected = [one["roller"].tolist() for one in envs.reset(seed=np.array(seeds))]
    # One number, of whatever type, is that of the first, as gymnasium's vector environments take it.
    assert envs.reset(seed=np.int64(9001))[0]["roller"].tolist() == expected[0]
    envs.close()
    cage = VectorizedCage(VectorEnvFactory(lambda n: made(n).as_vector_env()), seeds=seeds)
    samples = make_samples(Dice(), T, 3, info=False)
    with cage:
        cage.set_samples_buffer(samples, slice(0, 3))
        cage.start_reset(0)
        cage.finish_row()
        assert [plain(samples.env.observation, 0, b).tolist() for b in range(3)] == expected
