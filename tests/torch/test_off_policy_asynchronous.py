"""Off-policy algorithms learn while another process samples, with their weights and exploration."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch

from parllel import BatchSpec, Seeds
from parllel.logging import Logger
from parllel.replays import UniformReplay
from parllel.runners import OffPolicyRunner
from parllel.samplers import AsynchronousSampler
from parllel.torch import DQN, SAC, TD3, TorchHandler, q_agent_for, sac_agent_for, td3_agent_for
from parllel.transforms import FinalObservations
from parllel_patterns import (
    DqnParameters,
    SacParameters,
    Td3Parameters,
    allocate_samples,
    build_cages,
    build_sampler,
)

SPEC = BatchSpec(16, 2)
# Half of the steps are taken at random, and the rest nearly without noise.
RANDOM_STEPS, N_STEPS = 400, 800
KINDS = {
    "dqn": (
        "CartPole-v1",
        q_agent_for,
        lambda agent: DQN(
            agent, **DqnParameters(final_epsilon=0.0, epsilon_anneal_steps=RANDOM_STEPS)
        ),
    ),
    "sac": (
        "Pendulum-v1",
        sac_agent_for,
        lambda agent: SAC(agent, **SacParameters(random_steps=RANDOM_STEPS), seed=0),
    ),
    "td3": (
        "Pendulum-v1",
        partial(td3_agent_for, exploration_noise=0.0),
        lambda agent: TD3(agent, **Td3Parameters(random_steps=RANDOM_STEPS), seed=0),
    ),
}


def build(env_id, make_agent):
    torch.set_num_threads(1)
    cages = build_cages(partial(gym.make, env_id), SPEC.B, seeds=Seeds(0))
    # Its weights and exploration are replaced by those that are published.
    agent = make_agent(cages[0].spaces, seeds=Seeds(2), hidden_sizes=(16,))
    transforms = [FinalObservations()]
    return build_sampler(SPEC, cages, TorchHandler(agent), [], transforms, switching=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_another_process_samples_with_the_exploration_of_the_algorithm(kind):
    env_id, make_agent, make_algorithm = KINDS[kind]
    (cage,) = build_cages(partial(gym.make, env_id), SPEC.B, seeds=Seeds(5))
    agent = make_agent(cage.spaces, seeds=Seeds(1), hidden_sizes=(16,))
    handler = TorchHandler(agent)
    memory = allocate_samples(
        [cage], SPEC, handler, [FinalObservations()], n_batches=N_STEPS // SPEC.size
    )
    with cage, AsynchronousSampler(partial(build, env_id, make_agent), agent=agent) as sampler:
        runner = OffPolicyRunner(
            SPEC,
            sampler,
            make_algorithm(agent),
            UniformReplay(memory, batch_size=8, discount=0.99, seed=0),
            replay_ratio=0.25,
            learning_starts=100,
            n_steps=N_STEPS,
            logger=Logger([]),
            log_interval_steps=N_STEPS,
        )
        runner.run()
        assert 0 < sampler.version <= N_STEPS // SPEC.size
        assert sampler.stats["staleness"] <= 1
    observation, action = (
        np.asarray(leaf.full[...]) for leaf in (memory.agent.observation, memory.agent.action)
    )
    agent.eval_mode()
    greedy = handler.act(observation.reshape(N_STEPS, -1), slice(0, N_STEPS))
    differs = np.abs(action.reshape(greedy.shape) - greedy).reshape(N_STEPS, -1).max(axis=1)
    early, late = differs[:200], differs[-200:]
    if kind == "dqn":
        # Random actions are half the time those of the policy, and those of old weights seldom other ones.
        assert np.mean(early > 0) > 0.3
        assert np.mean(late > 0) < 0.2
    else:
        assert np.median(early) > 0.4
    if kind == "td3":
        assert np.median(late) < 0.2
