"""What a terminal or a notebook shows of a sampler and its parts."""

from __future__ import annotations

import time
from functools import partial

import gymnasium as gym
import pytest

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import Cage, ProcessCage, SynchronizedProcessCage, VectorizedCage
from parllel.testing.dummy_envs import CountingEnv
from parllel.torch import (
    PPO,
    TorchHandler,
    agent_for,
    q_agent_for,
    sac_agent_for,
)
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import PPO_DEFAULTS, build_cages, build_sampler


def test_a_sampler_shows_its_parts():
    seeds = Seeds(0)
    cages = build_cages(partial(gym.make, "CartPole-v1"), 4, seeds=seeds)
    agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(8,))
    transforms = [EstimateAdvantage(0.99, 0.95), NormalizeAdvantage()]
    # Of policy and value: (4 + 1) * 8 + (8 + 1) * n.
    shown = "PgAgent(PgModel, 107 parameters, cpu)"
    with build_sampler(BatchSpec(5, 4), cages, TorchHandler(agent), [], transforms) as sampler:
        assert repr(sampler).split("\n") == [
            "BasicSampler(T=5, B=4)",
            "  cages             [VectorizedCage(4 x CartPole-v1)]",
            f"  handler           TorchHandler({shown})",
            "  batch_transforms  [EstimateAdvantage, NormalizeAdvantage]",
        ]
        assert repr(PPO(agent, **PPO_DEFAULTS, seed=0)) == f"PPO({shown})"
        samples, _ = sampler.collect_batch(0)
        lines = repr(samples).split("\n")
        assert lines[0] == "Samples"
        assert "  env.observation            <RotatingArray (5, 4, 4) float32, local>" in lines
        assert "  agent.agent_info.log_prob  <Array (5, 4) float32, local>" in lines
        assert not [line for line in lines if "env_info" in line]  # it is None
        assert repr(samples.env).startswith("EnvSamples\n  observation")
        assert repr(samples[2:4].env.reward) == "<view of Array (2, 4) float32, local>"
    assert repr(seeds) == "Seeds(0)"
    assert "VectorizedCage(4 x CartPole-v1)" in repr(sampler)  # after closing, too


class Slow(CountingEnv):
    """Takes its time to be made."""

    def __init__(self):
        time.sleep(0.5)
        super().__init__()


def test_cages_do_not_wait_for_their_workers():
    with ProcessCage(Slow, seed=0) as one, SynchronizedProcessCage([Slow] * 3, n_workers=1) as more:
        assert repr(one) == "ProcessCage(1 x environments)"
        assert repr(more) == "SynchronizedProcessCage(3 x environments)"
        assert one.spaces.name == "Slow"
        assert repr(one) == "ProcessCage(1 x Slow)"


@pytest.mark.parametrize("make", [Cage, lambda env, seed: VectorizedCage([env], seeds=[seed])])
def test_cages_in_this_process(make):
    with make(CountingEnv, seed=0) as cage:
        assert repr(cage) == f"{type(cage).__name__}(1 x CountingEnv)"
        handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=0))
        assert repr(handler) == "NumpyHandler(RandomAgent())"


def test_agents_name_their_models():
    with VectorizedCage([partial(gym.make, "Pendulum-v1")], seeds=[0]) as cage:
        spaces = cage.spaces
    agent = sac_agent_for(spaces, seeds=Seeds(0), hidden_sizes=(8,))
    # 3 * 8 + 8 + 8 * 2 + 2; critics learn, but do not act.
    assert repr(agent) == "SacAgent(PolicyModel, 50 parameters, cpu)"
    with VectorizedCage([partial(gym.make, "CartPole-v1")], seeds=[0]) as cage:
        agent = q_agent_for(cage.spaces, seeds=Seeds(0), hidden_sizes=(8,))
    assert repr(agent) == "QAgent(QModel, 58 parameters, cpu)"
