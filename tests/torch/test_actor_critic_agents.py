from __future__ import annotations

import copy
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from off_policy_setup import BOX, parameters, sac_agent, td3_agent

from parllel import BatchSpec, Seeds
from parllel.agents import Handler
from parllel.agents.weights import load_weights, weights_of
from parllel.cages import Spaces
from parllel.samplers import BasicSampler
from parllel.torch import TorchHandler, sac_agent_for, td3_agent_for
from parllel_patterns import allocate_samples, build_cages

MAKERS = [sac_agent, td3_agent]


@pytest.mark.parametrize("make", MAKERS)
def test_evaluations_are_deterministic_and_draw_nothing(make):
    agent, observation = make(), torch.randn(5, 3)
    before = agent.state()["generator"]
    agent.eval_mode()
    first, _ = agent.step(observation)
    assert agent.draw_noise(2, 5) is None
    second, _ = agent.step(observation)
    assert torch.equal(first, second)
    assert np.array_equal(agent.state()["generator"], before)
    agent.random_actions = True
    assert torch.equal(agent.step(observation)[0], first)


@pytest.mark.parametrize("make", MAKERS)
def test_random_actions_fill_the_box(make):
    agent = make()
    agent.random_actions = True
    noise = agent.draw_noise(100, 20)
    action = torch.cat([agent.step(torch.full((20, 3), torch.nan), noise=row)[0] for row in noise])
    assert action.shape == (2000, 2)
    np.testing.assert_allclose(action.min(dim=0).values, BOX.low, atol=0.01)
    np.testing.assert_allclose(action.max(dim=0).values, BOX.high, atol=0.01)
    np.testing.assert_allclose(action.mean(dim=0), (BOX.low + BOX.high) / 2, atol=0.1)
    assert agent.step(torch.zeros(4, 3))[0].shape == (4, 2)


def test_sac_draws_from_its_policy():
    agent = sac_agent()
    observation, noise = torch.randn(6, 3), agent.draw_noise(1, 6)[0]
    action, info = agent.step(observation, noise=noise)
    outputs = agent.policy(observation)
    unit = torch.tanh(outputs[:, :2] + outputs[:, 2:].exp() * noise)
    torch.testing.assert_close(action, unit * torch.tensor([2.0, 0.5]) + torch.tensor([1.0, 0.0]))
    assert info is None


def test_td3_adds_noise_within_the_box():
    agent = td3_agent()
    observation = torch.randn(200, 3)
    noise = 30 * agent.draw_noise(1, 200)[0]
    action, _ = agent.step(observation, noise=noise)
    unit = (torch.tanh(agent.policy(observation)) + 0.1 * noise).clamp(-1, 1)
    torch.testing.assert_close(action, unit * torch.tensor([2.0, 0.5]) + torch.tensor([1.0, 0.0]))


@pytest.mark.parametrize("make", MAKERS)
def test_weights_are_what_acting_needs(make):
    agent, other = make(seed=0), make(seed=1)
    agent.random_actions = True
    assert sorted(weights_of(agent)) == ["policy", "random_actions"]
    load_weights(other, weights_of(agent))
    assert other.random_actions
    pairs = zip(parameters(agent.policy), parameters(other.policy), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    assert not torch.equal(parameters(agent.critics)[0], parameters(other.critics)[0])


@pytest.mark.parametrize("make", MAKERS)
def test_a_copy_shares_noise_and_exploration(make):
    agent = make()
    twin = agent.copy_to_device("cpu")
    twin.trained = agent
    agent.random_actions = True
    assert twin.random_actions
    assert not torch.equal(twin.draw_noise(1, 2), agent.draw_noise(1, 2))
    with torch.no_grad():
        agent.policy.network.layers[0].bias += 1
    state = twin.state()
    np.testing.assert_array_equal(
        state["policy"]["network.layers.0.bias"], agent.policy.network.layers[0].bias.detach()
    )
    with torch.no_grad():
        agent.policy.network.layers[0].bias += 1
    twin.load_state(state)
    for one in (agent, twin):
        np.testing.assert_array_equal(
            state["policy"]["network.layers.0.bias"], one.policy.network.layers[0].bias.detach()
        )


@pytest.mark.parametrize("make", [sac_agent_for, td3_agent_for])
def test_samplers_store_actions_of_the_environment(make):
    cages = build_cages(partial(gym.make, "Pendulum-v1"), 2, seeds=Seeds(0))
    agent = make(cages[0].spaces, seeds=Seeds(1), hidden_sizes=(8,))
    handler: Handler = TorchHandler(agent)
    spec = BatchSpec(5, 2)
    samples = allocate_samples(cages, spec, handler)
    sampler = BasicSampler(spec, cages, handler, samples)
    agent.random_actions = True
    batch, _ = sampler.collect_batch(0)
    actions = np.asarray(batch.agent.action)
    assert actions.shape == (5, 2, 1)
    assert 1 < np.abs(actions).max() <= 2
    agent.random_actions = False
    before = actions.copy()
    sampler.collect_batch(10)
    assert not np.array_equal(before, np.asarray(batch.agent.action))
    sampler.close()


@pytest.mark.parametrize("make", [sac_agent_for, td3_agent_for])
def test_structured_observations(make):
    space = Dict(
        {
            "image": Box(0, 255, (12, 12, 3), np.uint8),
            "speed": Box(-1, 1, (2,)),
            "gear": Discrete(3),
        }
    )
    agent = make(Spaces(space, BOX, "test"), seeds=Seeds(0), hidden_sizes=(8,))
    observation = {
        "image": torch.zeros(4, 12, 12, 3, dtype=torch.uint8),
        "speed": torch.zeros(4, 2),
        "gear": torch.ones(4, dtype=torch.int64),
    }
    action, _ = agent.step(observation)
    assert action.shape == (4, 2)
    assert agent.critics(observation, action).shape == (2, 4)
    # Separate encoders: the critics' gradients do not change what the policy sees.
    shared = {id(p) for p in agent.policy.parameters()} & {
        id(p) for p in agent.critics.parameters()
    }
    assert not shared


@pytest.mark.parametrize("make", [sac_agent_for, td3_agent_for])
def test_discrete_actions_are_refused(make):
    with pytest.raises(TypeError, match=f"{make.__name__}: expected actions of a Box"):
        make(Spaces(BOX, Discrete(3), "test"), seeds=Seeds(0))


def test_initial_weights_depend_on_the_seed_only():
    spaces = Spaces(BOX, BOX, "test")
    torch.manual_seed(0)
    first = sac_agent_for(spaces, seeds=Seeds(3))
    torch.manual_seed(1)
    state = copy.deepcopy(first.state())
    second = sac_agent_for(spaces, seeds=Seeds(3)).state()
    assert all(np.array_equal(state["critics"][k], second["critics"][k]) for k in state["critics"])
    weights = state["policy"]["network.layers.1.weight"]
    assert np.abs(weights).max() <= 1 / 16
    assert weights.std() == pytest.approx(1 / 16 / np.sqrt(3), rel=0.02)
    # The twins start apart.
    assert not np.array_equal(
        state["critics"]["networks.0.layers.0.weight"],
        state["critics"]["networks.1.layers.0.weight"],
    )
