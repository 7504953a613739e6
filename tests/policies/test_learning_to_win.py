"""PPO learns to beat a fixed opponent, which beats those who have not learned."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
import torch

from parllel import BatchSpec, Seeds
from parllel.policies import OpponentEnv
from parllel.testing import FrequencyPolicy, RockPaperScissorsEnv
from parllel.torch import PPO, TorchHandler, agent_for
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import PPO_DEFAULTS, build_cages, build_eval_sampler, build_sampler

SPEC = BatchSpec(T=32, B=16)
BATCHES = 16
EPISODES = 160


@pytest.fixture
def one_thread():
    """Keep a network this small from waiting for a second thread on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_env():
    return OpponentEnv(RockPaperScissorsEnv(), "red", {"blue": FrequencyPolicy()})


def returns_after(batches, seed):
    """Return the returns of an evaluation after learning from so many batches."""
    seeds = Seeds(seed)
    with ExitStack() as stack:
        cages = build_cages(make_env, SPEC.B, seeds=seeds, parallel=False, stack=stack)
        agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(32,))
        transforms = [EstimateAdvantage(0.5, 0.95), NormalizeAdvantage()]
        sampler = build_sampler(SPEC, cages, TorchHandler(agent), [], transforms)
        settings = {**PPO_DEFAULTS, "learning_rate": 3e-3, "epochs": 4}
        ppo = PPO(agent, **settings, seed=seeds.integer("algorithm"))
        eval_cages = build_cages(
            make_env, 16, seeds=seeds, name="evaluation", parallel=False, stack=stack
        )
        evaluation = build_eval_sampler(eval_cages, sampler, EPISODES)
        for batch in range(batches):
            samples, _ = sampler.collect_batch(batch * SPEC.size)
            ppo.optimize_agent((batch + 1) * SPEC.size, samples)
        _, trajs = evaluation.collect_batch(0)
    return np.array([traj.return_ for traj in trajs])


def standard_errors(returns):
    """Return by how many of its standard errors the mean is above 0."""
    return returns.mean() / (returns.std(ddof=1) / np.sqrt(len(returns)))


@pytest.mark.parametrize("seed", range(3))
def test_ppo_learns_to_beat_an_opponent(seed, one_thread):
    # A player who does not look loses, so that winning has to be learned.
    assert standard_errors(returns_after(0, seed)) < -5
    assert standard_errors(returns_after(BATCHES, seed)) > 5
