from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch

from parllel import BatchSpec, Seeds
from parllel.cages import TrajInfo
from parllel.samplers import BasicSampler
from parllel.torch import PPO, CategoricalHead, CategoricalPgAgent, PgModel, SmallPolicyHandler
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import PPO_DEFAULTS, allocate_samples, build_cages

T, B, BATCHES = 64, 16, 20


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_ppo_learns_cartpole_with_it():
    seeds = Seeds(0)
    spec = BatchSpec(T, B)
    with ExitStack() as stack:
        cages = build_cages(
            partial(gym.make, "CartPole-v1"),
            B,
            seeds=seeds,
            parallel=False,
            traj_info=partial(TrajInfo, discount=0.98),
        )
        for cage in cages:
            stack.callback(cage.close)
        model = PgModel((4,), CategoricalHead(2), (64, 64), seed=seeds.integer("model"))
        agent = CategoricalPgAgent(model, 2, seed=seeds.integer("agent"))
        handler = SmallPolicyHandler(agent)
        transforms = [EstimateAdvantage(0.98, 0.9), NormalizeAdvantage()]
        samples = allocate_samples(cages, spec, handler, transforms)
        sampler = BasicSampler(spec, cages, handler, samples, batch_transforms=transforms)
        algorithm = PPO(
            agent,
            **{**PPO_DEFAULTS, "learning_rate": 1e-3, "epochs": 8},
            seed=seeds.integer("algorithm"),
        )
        returns = []
        for batch in range(BATCHES):
            elapsed = (batch + 1) * T * B
            samples, trajectories = sampler.collect_batch(elapsed)
            algorithm.optimize_agent(elapsed, samples)
            returns.append([trajectory.return_ for trajectory in trajectories])
    # Random actions keep the pole up for about 22 steps.
    assert np.mean(np.concatenate(returns[:2])) < 40
    assert np.mean(np.concatenate(returns[-4:])) > 80
