"""Models of action values, and agents that act on them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from torch import nn

from parllel import BatchSpec, Seeds
from parllel.agents import load_weights, weights_of
from parllel.buffers.named_tuple import NamedTuple
from parllel.cages import Spaces
from parllel.samplers.published_weights import PublishedWeights, WeightsReader
from parllel.torch import (
    CpuSamplingHandler,
    QAgent,
    QModel,
    TorchHandler,
    epsilon_ladder,
    q_agent_for,
)
from parllel.torch.models.tree_encoder import FlatEncoder, TreeEncoder
from parllel_patterns import build_cages, build_sampler

OBSERVATION = torch.randn(6, 4, generator=torch.Generator().manual_seed(5))


def q_agent(epsilon=0.5, dueling=False, seed=0, **settings):
    return QAgent(
        QModel((4,), 3, (16,), seed=0, dueling=dueling), 3, epsilon=epsilon, seed=seed, **settings
    )


class Fixed(nn.Module):
    """Returns the observation as the values."""

    def forward(self, observation):
        return observation


def fixed_agent(n_actions=3, **settings):
    return QAgent(Fixed(), n_actions, seed=1, **settings)


def test_duelling_networks_combine_as_in_the_paper():
    model = QModel((4,), 3, (16,), seed=0, dueling=True)
    advantage = model.actions(OBSERVATION).double()
    value = model.state_value(OBSERVATION).double()
    expected = value + advantage - advantage.sum(1, keepdim=True) / 3
    torch.testing.assert_close(model(OBSERVATION).double(), expected, atol=1e-6, rtol=1e-6)


def test_initial_weights_are_those_of_pytorch():
    model = QModel((4,), 3, (16, 8), seed=5)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(5)
        layers = [torch.nn.Linear(*sizes) for sizes in ((4, 16), (16, 8), (8, 3))]
    for layer, expected in zip(model.actions.layers, layers, strict=True):
        torch.testing.assert_close(layer.weight, expected.weight)
        torch.testing.assert_close(layer.bias, expected.bias)


def test_same_seed_same_weights():
    one, other = (QModel((4,), 3, (16, 8), seed=3).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_mask_needs_an_encoder():
    with pytest.raises(ValueError, match="action_mask"):
        QModel((4,), 3, (16,), seed=0, action_mask="mask")


def test_greedy_in_eval_mode_and_random_state_kept():
    agent = fixed_agent(epsilon=1.0)
    before = agent.state()["generator"].tobytes()
    agent.eval_mode()
    values = torch.tensor([[1.0, 3, 2], [4, 0, 4], [0, 0, 9]])
    action, info = agent.step(values)
    assert action.tolist() == [1, 0, 2]
    assert action.dtype == torch.int64
    assert info is None
    assert agent.draw_noise(2, 3) is None
    agent.sample_mode()
    assert agent.state()["generator"].tobytes() == before
    assert agent.value(values).tolist() == [3, 4, 9]


def test_start_shifts_actions():
    agent = fixed_agent(epsilon=0.0, start=5)
    assert agent.step(torch.tensor([[1.0, 3, 2]]))[0].item() == 6
    assert agent.action_space == Discrete(3, start=5)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_frequencies_of_random_actions(epsilon):
    agent = fixed_agent(4, epsilon=epsilon)
    n = 40_000
    values = torch.tensor([0.0, 2, 1, -1]).expand(n, 4)
    action, _ = agent.step(values, noise=agent.draw_noise(1, n)[0])
    counts = np.bincount(action.numpy(), minlength=4)
    expected = n * (epsilon / 4 + (1 - epsilon) * np.array([0, 1, 0, 0]))
    # Five standard deviations of a binomial.
    np.testing.assert_allclose(counts, expected, atol=5 * np.sqrt(n * 0.25) + 1e-9)
    if epsilon == 0:
        assert (action == 1).all()


def test_forbidden_actions_are_never_taken_and_others_equally_often():
    agent = fixed_agent(5, epsilon=1.0)
    n, low = 30_000, -torch.inf
    values = torch.tensor([low, 1.0, low, 3.0, 2.0]).expand(n, 5)
    counts = np.bincount(agent.step(values)[0].numpy(), minlength=5)
    assert counts[0] == counts[2] == 0
    np.testing.assert_allclose(counts[[1, 3, 4]], n / 3, atol=5 * np.sqrt(n * 2 / 9))


@pytest.mark.parametrize("n_actions", [1, 2, 3, 5, 7, 17, 1000])
def test_largest_random_number_selects_the_last_action(n_actions):
    agent = fixed_agent(n_actions)
    noise = torch.tensor([1 - 2.0**-24, 0.0])
    values = torch.zeros(2, n_actions)
    assert agent.step(values, noise=noise)[0].tolist() == [n_actions - 1, 0]


def test_epsilons_of_environments():
    agent = q_agent(epsilon=[0.0, 1.0])
    noise = agent.draw_noise(50, 4)
    assert noise.shape == (50, 4)
    assert noise.dtype == torch.float32
    assert (noise[:, ::2] == -1).all()
    assert (noise[:, 1::2] >= 0).all()
    # Without noise, the environments are known by their indices.
    agent = fixed_agent(2, epsilon=[0.0, 1.0])
    values = torch.tensor([[1.0, 0.0]]).expand(200, 2)
    assert not agent.step(values, env_indices=np.full(200, 2))[0].any()
    assert agent.step(values, env_indices=np.full(200, 3))[0].any()
    half = values[:1]
    assert not any(agent.step(half, env_indices=slice(0, 1))[0].item() for _ in range(40))
    assert any(agent.step(half, env_indices=slice(1, 2))[0].item() for _ in range(40))


def test_noise_of_a_seed_leaves_the_generator_alone():
    agent = q_agent()
    before = agent.state()["generator"].tobytes()
    one, other = agent.draw_noise(3, 2, seed=9), agent.draw_noise(3, 2, seed=9)
    assert torch.equal(one, other)
    assert agent.state()["generator"].tobytes() == before


def test_ladder_of_horgan_et_al():
    ladder = epsilon_ladder(3)
    np.testing.assert_allclose(ladder, [0.4, 0.4**4.5, 0.4**8])
    assert epsilon_ladder(1) == [0.4]


@pytest.mark.parametrize("epsilon", [-0.1, 1.1, float("nan"), [], [0.5, 2], [[0.5]]])
def test_bad_epsilon(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        q_agent(epsilon=epsilon)


def test_number_of_epsilons_stays():
    agent = q_agent(epsilon=[0.1, 0.2])
    agent.set_epsilon(0.5)
    assert agent.epsilon.tolist() == [0.5, 0.5]
    agent.set_epsilon([0.25, 0.75])
    with pytest.raises(ValueError, match="expected 2"):
        agent.set_epsilon([0.1, 0.2, 0.3])


def test_state_is_arrays_and_continues_the_noise():
    agent, other = q_agent([0.1, 0.7]), q_agent([0.5, 0.5], dueling=False, seed=4)
    agent.draw_noise(3, 2)
    other.load_state(agent.state())
    assert torch.equal(agent.draw_noise(5, 2), other.draw_noise(5, 2))
    assert other.epsilon.tolist() == agent.epsilon.tolist()
    torch.testing.assert_close(agent.value(OBSERVATION), other.value(OBSERVATION))


def test_weights_carry_exploration_to_another_process():
    agent, other = q_agent([0.1, 0.7]), q_agent([1.0, 1.0], seed=4)
    published = PublishedWeights.of(agent)
    reader = WeightsReader(other, published)
    agent.set_epsilon([0.2, 0.3])
    with torch.no_grad():
        agent.model.actions.layers[0].weight.mul_(2)
    published.publish(agent)
    reader.load()
    np.testing.assert_allclose(other.epsilon, [0.2, 0.3])
    assert torch.equal(other.value(OBSERVATION), agent.value(OBSERVATION))
    assert set(weights_of(agent)) == {"model", "epsilon"}
    load_weights(other, weights_of(q_agent([0.9, 0.8])))
    np.testing.assert_allclose(other.epsilon, [0.9, 0.8])


def test_copy_shares_noise_and_epsilon():
    agent = q_agent([0.1, 0.7])
    twin = agent.copy_to_device("cpu")
    twin.trained = agent
    agent.set_epsilon(0.9)
    assert twin.epsilon.tolist() == agent.epsilon.tolist()
    assert twin.model is not agent.model
    with torch.no_grad():
        agent.model.actions.layers[0].weight.mul_(2)
    assert np.array_equal(
        twin.state()["model"]["actions.layers.0.weight"],
        agent.model.actions.layers[0].weight.detach(),
    )


def test_bad_arguments():
    with pytest.raises(TypeError, match="call it"):
        QAgent(QModel, 3, seed=0)
    with pytest.raises(ValueError, match="n_actions"):
        QAgent(Fixed(), 0, seed=0)
    with pytest.raises(TypeError, match=r"^QAgent: seed: expected an int, got Seeds"):
        QAgent(Fixed(), 3, seed=Seeds(0))
    with pytest.raises(TypeError, match=r"expected values \[N, 4\]"):
        fixed_agent(4).step(torch.zeros(2, 3))


def spaces_of(observation, action):
    return Spaces(observation, action, "environment")


def test_agent_for_images_structured_observations_and_masks():
    image = Box(0, 255, (4, 84, 84), np.uint8)
    agent = q_agent_for(spaces_of(image, Discrete(6, start=1)), seeds=Seeds(1), dueling=True)
    values = agent.value(torch.zeros((2, 4, 84, 84), dtype=torch.uint8))
    assert values.shape == (2,)
    assert (agent.start, agent.n_actions) == (1, 6)
    # Heads directly on the 512 features.
    assert [tuple(layer.weight.shape) for layer in agent.model.actions.layers] == [(6, 512)]
    observed = Dict(step=Box(0, 1, (1,)), mask=MultiBinary(5))
    masked = q_agent_for(spaces_of(observed, Discrete(5)), seeds=Seeds(1), action_mask="mask")
    mask = torch.tensor([[0, 1, 0, 0, 1], [0, 0, 0, 0, 0]], dtype=torch.int8)
    observation = NamedTuple(step=torch.zeros(2, 1), mask=mask)
    values = masked.action_values(observation)
    assert torch.isinf(values[0]).tolist() == [True, False, True, True, False]
    assert not torch.isinf(values[1]).any()
    actions = {masked.step(observation)[0][0].item() for _ in range(50)}
    assert actions == {1, 4}
    with pytest.raises(TypeError, match="expected actions of a Discrete space"):
        q_agent_for(spaces_of(image, Box(-1, 1, (2,))), seeds=Seeds(1))


def test_mask_of_another_size():
    trunk = TreeEncoder({"seen": FlatEncoder((2,)), "mask": FlatEncoder((3,))})
    model = QModel(trunk, 4, (8,), seed=0, action_mask="mask")
    with pytest.raises(ValueError, match="expected 4 numbers"):
        model(NamedTuple(seen=torch.zeros(1, 2), mask=torch.ones(1, 3)))


class PlainHandler(TorchHandler):
    """Calls the agent's `step`, as overriding `agent_inputs` does."""

    def agent_inputs(self, observation, rows, columns):
        return super().agent_inputs(observation, rows, columns)


class MaskedCartPole(gym.ObservationWrapper):
    """Adds a mask that forbids an action by turns."""

    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))
        self.observation_space = Dict(seen=self.env.observation_space, mask=MultiBinary(2))
        self.n = 0

    def observation(self, observation):
        self.n += 1
        return {"seen": observation, "mask": np.array([self.n % 3 > 0, self.n % 4 > 0], np.int8)}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, [0.3, 1.0, 0.0], [1.0, 1.0, 0.9]])
def test_known_agents_step_like_their_own_step(masked, epsilon):
    actions = []
    for kind in (TorchHandler, PlainHandler, CpuSamplingHandler):
        with ExitStack() as stack:
            seeds, make = Seeds(3), MaskedCartPole if masked else partial(gym.make, "CartPole-v1")
            cages = build_cages(make, 3, seeds=seeds, stack=stack)
            mask = "mask" if masked else None
            agent = q_agent_for(
                cages[0].spaces, seeds=seeds, dueling=True, epsilon=epsilon, action_mask=mask
            )
            # Otherwise one action is the best everywhere: values differ little from the last biases.
            for parameter in agent.model.parameters():
                if parameter.dim() == 1:
                    torch.nn.init.zeros_(parameter)
            sampler = build_sampler(BatchSpec(40, 3), cages, kind(agent))
            stack.callback(sampler.close)
            for _ in range(2):
                samples, _ = sampler.collect_batch(0)
            actions.append(np.array(samples.agent.action[:]))
    assert all(np.array_equal(actions[0], other) for other in actions[1:])
    assert len(np.unique(actions[0])) == 2


def test_samples_of_a_sampler_are_the_agents_actions():
    with ExitStack() as stack:
        _check_samples(stack)


def _check_samples(stack):
    seeds, spec = Seeds(3), BatchSpec(6, 2)
    cages = build_cages(partial(gym.make, "CartPole-v1"), 2, seeds=seeds, stack=stack)
    agent = q_agent_for(
        cages[0].spaces, seeds=seeds, hidden_sizes=(16,), epsilon=[0.0, 1.0], dueling=True
    )
    sampler = build_sampler(spec, cages, TorchHandler(agent))
    stack.callback(sampler.close)
    generator = agent.state()["generator"]
    samples, _ = sampler.collect_batch(0)
    observation = torch.from_numpy(np.array(samples.agent.observation[:]))
    other = q_agent_for(cages[0].spaces, seeds=Seeds(3), hidden_sizes=(16,), dueling=True)
    other.load_state(
        {**agent.state(), "generator": generator, "epsilon": np.array([0.0], np.float32)}
    )
    greedy = other.action_values(observation.flatten(0, 1)).argmax(1).reshape(6, 2).numpy()
    action = np.asarray(samples.agent.action[:])
    assert (action[:, 0] == greedy[:, 0]).all()
    assert samples.agent.agent_info is None
