"""Rollouts over each Kafka broker there is are those of plain calls: subsets, resets, renames, ends."""

import numpy as np
import pytest
from worlds import TREES, PlainWorld, World, draw_actions, make_agents

from parllel.distributed.messaging import KafkaBroker, VectorizedKafkaEnv
from parllel.distributed.wire import digest

pytest.importorskip("confluent_kafka")

N = 3


@pytest.mark.parametrize("name", ["grid", "several roots", "five levels"])
def test_rollouts_are_those_of_plain_calls(name, kafka_address):
    tree, ends = TREES[name], {"ends_beyond": 0.8, "max_steps": 4}
    plain = [PlainWorld(tree, **ends) for _ in range(N)]
    draws = np.random.default_rng(5)
    with (
        KafkaBroker("kafka", bootstrap=kafka_address, timeout_s=30.0) as broker,
        VectorizedKafkaEnv(
            lambda env_id: make_agents(tree),
            list(tree),
            N,
            env_class=World,
            env_kwargs=ends,
            broker=broker,
        ) as envs,
    ):
        assert digest(envs.reset(seed=2)) == digest(
            [one.reset(2 + i) for i, one in enumerate(plain)]
        )
        ended = [False] * N
        for step in range(10):
            actions = [
                None if ended[i] or draws.random() < 0.2 else draw_actions(tree, draws)
                for i in range(N)
            ]
            came = envs.step(actions)
            for i, of_one in enumerate(actions):
                if of_one is not None:
                    expected = plain[i].step(of_one)
                    ended[i] = expected[2] or expected[3]
                    assert digest([came[k][i] for k in (0, 1, 3)]) == digest(
                        [expected[k] for k in (0, 1, 4)]
                    )
            for i in range(N):
                if ended[i]:
                    assert digest(envs.reset([i])) == digest([plain[i].reset()])
                    ended[i] = False
            envs.set_env_id(step % N, f"{step} é/\n")
