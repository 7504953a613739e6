"""Environments of agents as native vector environments in cages, in this process and in workers."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from worlds import BOX, TREES, PlainWorld, World, make_agents

from parllel.buffers import buffer_leaves
from parllel.cages import SynchronizedProcessCage, VectorEnvFactory, VectorizedCage
from parllel.distributed.messaging import ExecutionMode, VectorizedKafkaEnv
from parllel.distributed.messaging.vectorized_kafka_env import KafkaVectorEnv
from parllel.testing.cages.cage_hooks import run_groups
from parllel.testing.cages.native_cage_contract import NativeCageContract
from parllel.testing.cages.row_reference import make_samples, seeds_of

TREE = TREES["grid"]
ENDS = {"ends_beyond": 2.0, "max_steps": 9}
# What `make_samples` asks of an environment.
ONE = SimpleNamespace(observation_space=BOX, action_space=BOX)


def make_face(
    n: int,
    tree: Any = TREE,
    autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    **settings: Any,
) -> KafkaVectorEnv:
    envs = VectorizedKafkaEnv(
        lambda env_id: make_agents(tree),
        list(tree),
        n,
        env_class=World,
        env_kwargs=ENDS,
        **settings,
    )
    return envs.as_vector_env(autoreset_mode=autoreset_mode)


class TestSameStep(NativeCageContract):
    mode = "SameStep"
    has_state = True

    def make_env(self, n: int) -> Any:
        return make_face(n, autoreset_mode=AutoresetMode(self.mode))


class TestNextStep(TestSameStep):
    mode = "NextStep"


class TestDisabled(TestSameStep):
    mode = "Disabled"


class TestSync(TestSameStep):
    def make_env(self, n: int) -> Any:
        return make_face(n, execution_mode=ExecutionMode.SYNC)


N, T = 5, 40
SEEDS = (3, 1, 4, 1, 5)


def fill(cage: Any) -> dict[str, bytes]:
    """Return the rows of a batch of fixed actions."""
    samples = make_samples(ONE, T, N, storage="managed", info=False)
    samples.agent.action[...] = np.random.default_rng(0).normal(size=(T, N, 2))
    cage.set_samples_buffer(samples, slice(0, N))
    run_groups(cage, "start_reset", 0)
    for t in range(T):
        run_groups(cage, "start_row", t)
    return rows_of(samples)


def plain_rows() -> dict[str, bytes]:
    """Return the same rows by plain loops, one environment after the other."""
    samples = make_samples(ONE, T, N, storage="managed", info=False)
    actions = np.random.default_rng(0).normal(size=(T, N, 2)).astype(np.float32)
    env = samples.env
    for i, seed in enumerate(SEEDS):
        plain = PlainWorld(TREE, **ENDS)
        env.observation[0, i] = plain.reset(seeds_of(seed)[0])["grid1"]
        for t in range(T):
            observations, rewards, terminated, truncated, _ = plain.step({"grid1": actions[t, i]})
            ended = terminated or truncated
            env.reward[t, i] = rewards["grid1"]
            env.terminated[t, i], env.truncated[t, i] = terminated, truncated and not terminated
            env.done[t, i] = ended
            env.observation[t + 1, i] = (plain.reset() if ended else observations)["grid1"]
    return rows_of(samples)


def rows_of(samples: Any) -> dict[str, bytes]:
    return {
        path: np.array(leaf[: T + ("observation" in path)]).tobytes()
        for path, leaf in buffer_leaves(samples.env)
    }


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(
    "settings", [{}, {"execution_mode": ExecutionMode.SYNC}], ids=["bytes", "calls"]
)
@pytest.mark.few(2)
def test_cages_here_and_in_workers_hold_the_rows_of_plain_loops(
    mode: AutoresetMode, settings: dict[str, Any]
) -> None:
    factory = VectorEnvFactory(partial(make_face, autoreset_mode=mode, **settings))
    expected = plain_rows()
    with VectorizedCage(factory, n=N, seeds=SEEDS) as cage:
        assert fill(cage) == expected
    with SynchronizedProcessCage(
        factory, n=N, seeds=SEEDS, n_workers=2, participate=True, start_method="forkserver"
    ) as cage:
        assert fill(cage) == expected
