"""DQN on CartPole, from fragments that several workers make, which are copied into a replay."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from parllel import BatchSpec, Seeds
from parllel.distributed.rollouts import (
    FragmentSampler,
    FragmentSender,
    RolloutWorker,
    SynchronousSchedule,
)
from parllel.logging import Logger
from parllel.replays import UniformReplay
from parllel.runners import OffPolicyRunner
from parllel.torch import DQN, TorchHandler, q_agent_for
from parllel.transforms import FinalObservations
from parllel_patterns import DQN_DEFAULTS, allocate_samples, build_cages, build_sampler

# Episodes are cut by the time limit as well as by falls.
make_cart = partial(gym.make, "CartPole-v1", max_episode_steps=15)
T, N_ENVS = 8, 2
SPEC = BatchSpec(T, 6)
DISCOUNT = 0.9


def build_worker(context: Any) -> RolloutWorker:
    """Put a worker together."""
    seeds = Seeds(Seeds(5).integer(context.name))
    cages = build_cages(make_cart, N_ENVS, seeds=seeds)
    agent = q_agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(8,))
    sampler = build_sampler(
        BatchSpec(T, N_ENVS), cages, TorchHandler(agent, threads=1), next_observation=True
    )
    sender = FragmentSender(context.storage, capacity=1)
    context.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        SynchronousSchedule(sampler),
        fragment_length=T,
        seed=seeds.integer("noise"),
        producer=context.name,
        sender=sender,
        statistics=context.statistics,
    )


def make_runner(stack, buffer, workers, statistics, *, valid=True, writers=(), **more):
    """Return a runner that trains on what the workers send."""
    seeds = Seeds(6)
    cages = build_cages(make_cart, 1, seeds=seeds, stack=stack)
    agent = q_agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(8,))
    handler, transforms = TorchHandler(agent), [FinalObservations()]
    allocate = partial(allocate_samples, cages, SPEC, handler, transforms, storage="local")
    sampler = FragmentSampler(
        SPEC,
        buffer,
        handler,
        allocate(),
        batch_transforms=transforms,
        workers=workers,
        statistics=statistics,
    )
    stack.enter_context(sampler)
    memory = allocate(n_batches=20, valid=valid)
    replay = UniformReplay(memory, batch_size=32, discount=DISCOUNT, seed=1)
    settings = {**DQN_DEFAULTS, "epsilon_anneal_steps": 1000}
    return OffPolicyRunner(
        SPEC,
        sampler,
        DQN(agent, **settings),
        replay,
        logger=Logger(list(writers)),
        **{
            "replay_ratio": 0.25,
            "learning_starts": 200,
            "n_steps": 50 * SPEC.size,
            "log_interval_steps": 10 * SPEC.size,
            **more,
        },
    )


def check_transitions(replay: Any, n: int = 40) -> None:
    """Assert that each transition that a replay draws is one of CartPole, whose steps are not random."""
    env: Any = gym.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    ended = 0
    for _ in range(n):
        batch = replay.sample()
        for i in range(len(batch.reward)):
            env.state, env.steps_beyond_terminated = batch.observation[i].astype(np.float64), None
            after, reward, terminated, _, _ = env.step(int(batch.action[i]))
            assert batch.reward[i] == reward
            assert batch.discount[i] == (0 if terminated else np.float32(DISCOUNT))
            ended += terminated
            if not terminated:
                np.testing.assert_allclose(batch.next_observation[i], after, atol=2e-6)
    assert ended
