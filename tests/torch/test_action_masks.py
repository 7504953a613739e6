"""Models that forbid actions by a part of the observation."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ppo_setup import SETTINGS, parameters
from torch import nn

from parllel import BatchSpec, Seeds
from parllel.buffers.named_tuple import NamedTuple
from parllel.cages import Spaces
from parllel.torch import (
    PPO,
    Categorical,
    CategoricalHead,
    GaussianHead,
    MultiDiscrete,
    PgAgent,
    PgModel,
    TorchHandler,
    agent_for,
)
from parllel.torch.agents.independent_agents import IndependentAgents
from parllel.torch.algos.multi_agent_ppo import MultiAgentPPO, MultiAgentPpoInputs
from parllel.torch.algos.ppo_inputs import PpoInputs
from parllel.torch.models.tree_encoder import FlatEncoder, TreeEncoder
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import build_cages, build_sampler

SIZE = 3
CHOICES = (3, 1, 2)


class Numbers(gym.Env):
    """Name each of five numbers once; the reward is the number times the step."""

    observation_space = Dict(step=Box(0, 1, (1,)), mask=MultiBinary(5))
    action_space = Discrete(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = np.ones(5, np.int8)
        return self.shown(), {}

    def step(self, action):
        assert self.left[action], "this number was named before"
        self.left[action] = 0
        reward = float(action * (5 - self.left.sum()))
        return self.shown(), reward, not self.left.any(), False, {}

    def shown(self):
        return {"step": np.array([1 - self.left.mean()], np.float32), "mask": self.left.copy()}


def spaces_of(env):
    return Spaces(env.observation_space, env.action_space, type(env).__name__)


class Masked(nn.Module):
    """The same policy as a PgModel with a mask, written out."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, observation):
        x = torch.cat((observation.step, observation.mask), dim=-1)
        for layer in self.inner.policy.layers[:-1]:
            x = torch.tanh(layer(x))
        logits = self.inner.policy.layers[-1](x)
        x = torch.cat((observation.step, observation.mask), dim=-1)
        for layer in self.inner.critic.layers[:-1]:
            x = torch.tanh(layer(x))
        value = self.inner.critic.layers[-1](x).squeeze(-1)
        return torch.where(observation.mask == 0, -torch.inf, logits), value


def sampled(agent, learn=None, batches=3):
    """Return the samples of several batches of real episodes, after `learn` of each."""
    spec, seeds, found = BatchSpec(T=24, B=4), Seeds(0), []
    cages = build_cages(Numbers, spec.B, seeds=seeds)
    transforms = [EstimateAdvantage(0.99, 0.95), NormalizeAdvantage()]
    with build_sampler(spec, cages, TorchHandler(agent), [], transforms) as sampler:
        for number in range(1, batches + 1):
            # The environment refuses what its mask forbids.
            samples, _ = sampler.collect_batch(number * spec.size)
            agent_fields = samples.agent
            found.append(
                [
                    np.array(field)
                    for field in (
                        agent_fields.action,
                        *agent_fields.agent_info,
                        agent_fields.return_,
                    )
                ]
            )
            if learn is not None:
                learn(number * spec.size, samples)
    return found


def numbers_agent():
    return agent_for(
        spaces_of(Numbers()), seeds=Seeds(1), hidden_sizes=(8,), action_mask="mask", policy_gain=1.0
    )


def test_actions_are_those_of_a_model_that_masks_by_hand():
    agent = numbers_agent()
    twin = copy.deepcopy(agent)
    twin.model = Masked(twin.model)
    for mine, theirs in zip(sampled(agent), sampled(twin), strict=True):
        np.testing.assert_array_equal(mine[0], theirs[0])
        for one, other in zip(mine[1:], theirs[1:], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("update", ["flat", "autograd"])
def test_a_masked_policy_learns_as_by_hand(update):
    """After 80 updates on real batches, the parameters are autograd's for a model that masks by hand."""
    settings = {**SETTINGS, "learning_rate": 3e-4, "epochs": 5, "minibatches": 4}
    agent = numbers_agent()
    twin = copy.deepcopy(agent)
    algorithm = PPO(agent, **settings, update=update)
    batch = []
    sampled(agent, lambda elapsed, samples: batch.append(samples), batches=1)
    inner, twin.model = twin.model, Masked(twin.model)
    other = PPO(twin, **settings, update="autograd")
    for number in range(1, 5):
        found = algorithm.optimize_agent(96 * number, batch[0])
        wanted = other.optimize_agent(96 * number, batch[0])
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-5)
    assert algorithm.update_method == update
    theirs = dict(inner.named_parameters())
    for name, array in parameters(agent).items():
        np.testing.assert_allclose(array, theirs[name].detach(), rtol=0, atol=1e-6, err_msg=name)


def test_learning_goes_on_between_batches_of_a_masked_policy():
    agent = numbers_agent()
    algorithm = PPO(agent, **{**SETTINGS, "learning_rate": 0.03})
    before = sampled(agent, batches=1)[0][-1].mean()
    sampled(agent, algorithm.optimize_agent, batches=12)
    assert algorithm.update_method == "flat"
    # 30 an episode at random, 40 at best; the mean return of a step rises accordingly.
    assert sampled(agent, batches=1)[0][-1].mean() > before + 2


def masked_agent(several, hidden, seed, activation="tanh"):
    encoder = TreeEncoder({"seen": FlatEncoder((SIZE,))})
    model = PgModel(
        encoder,
        CategoricalHead(sum(CHOICES)),
        hidden,
        seed,
        policy_gain=1.0,
        activation=activation,
        action_mask="mask",
    )
    distribution = (
        MultiDiscrete(CHOICES, start=[0, -1, 5]) if several else Categorical(sum(CHOICES))
    )
    return PgAgent(model, distribution, seed=seed)


def masks_of(rng, n):
    """Return random masks that allow an action of each choice."""
    mask = rng.random((n, sum(CHOICES))) < 0.5
    start = 0
    for size in CHOICES:
        mask[np.arange(n), start + rng.integers(0, size, n)] = True
        start += size
    return mask


def steps_of(agent, n, rng):
    def normal(*shape):
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    mask = torch.from_numpy(masks_of(rng, n).astype(np.int8))
    observation = NamedTuple(seen=normal(n, SIZE), mask=mask)
    action = agent.step(observation)[0].clone()
    with torch.no_grad():
        log_prob, _, value = agent.evaluate(observation, action)
    return {
        "observation": observation,
        "action": action,
        "log_prob": log_prob + 0.3 * normal(n),
        "value": value + 0.3 * normal(n),
        "advantage": normal(n),
        "return_": normal(n),
    }


def least_input_of_a_unit(agent, steps):
    """Return the number nearest to zero that enters a rectifier."""
    model, least = copy.deepcopy(agent.model).double(), np.inf
    for network in (model.policy, model.critic):
        x = steps["observation"].seen.double()
        for layer in network.layers[:-1]:
            x = layer(x)
            least, x = min(least, x.abs().min().item()), x.relu()
    return least


def gradients(agent, steps, dtype, **options):
    """Return loss, diagnostics and gradients of autograd in a dtype."""
    twin = copy.deepcopy(agent)
    twin.model.to(dtype)
    # The encoder returns float32.
    twin.model.encoder = nn.Identity()
    seen, mask = steps["observation"].seen, steps["observation"].mask
    twin.model.allowed = lambda observation: mask != 0
    fields = {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in steps.items()
        if name != "observation"
    }
    inputs = PpoInputs(agent={"observation": seen.to(dtype)}, **fields)
    algorithm = PPO(twin, **{**SETTINGS, **options}, update="autograd")
    loss, diagnostics = algorithm.loss(inputs)
    loss.backward()
    found = torch.cat([p.grad.reshape(-1) for p in twin.model.parameters()])
    return loss.item(), diagnostics, found.double().numpy()


@given(
    several=st.booleans(),
    hidden=st.lists(st.integers(1, 9), max_size=2),
    activation=st.sampled_from(["tanh", "relu"]),
    n=st.integers(1, 40),
    weighted=st.booleans(),
    options=st.fixed_dictionaries(
        {
            "ratio_clip": st.sampled_from([0.05, 0.2]),
            "value_clip": st.sampled_from([None, 0.1]),
            "entropy_loss_coeff": st.sampled_from([0.0, 0.01, 1.0]),
        }
    ),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=150)
def test_gradients_are_autograds_in_float64(
    several, hidden, activation, n, weighted, options, seed
):
    agent = masked_agent(several, hidden, seed, activation)
    rng = np.random.default_rng(seed)
    steps = steps_of(agent, n, rng)
    if weighted:
        steps["weight"] = torch.from_numpy(np.exp(rng.normal(size=n)).astype(np.float32))
    # There a rounding decides whether a rectifier has a gradient.
    assume(activation == "tanh" or least_input_of_a_unit(agent, steps) > 1e-5)
    loss, diagnostics, expected = gradients(agent, steps, torch.float64, **options)
    usual = abs(gradients(agent, steps, torch.float32, **options)[2] - expected).max()
    algorithm = PPO(agent, **{**SETTINGS, **options}, update="flat")
    inputs = PpoInputs(agent={"observation": steps.pop("observation")}, **steps)
    flat = algorithm._updates.start_batch(inputs, None)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    flat.shuffle(order, [n])
    found, sums = flat.loss(0, n, algorithm._coefficients())
    flat.backward()
    atol = max(1e-6 * abs(expected).max(), 3 * usual)
    np.testing.assert_allclose(flat.adam.gradients, expected, rtol=0, atol=atol)
    assert found == pytest.approx(loss, rel=1e-5, abs=1e-5)
    means = algorithm._diagnostics_of(sums)
    for name, value in diagnostics.items():
        assert means[name] == pytest.approx(value.item(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("options", [{}, {"value_clip": 0.1}, {"kl_limit": 0.02}])
def test_steps_that_are_not_valid_do_not_count(several, options):
    """With masks, as with autograd and as without these steps."""
    rng = np.random.default_rng(1)
    steps = steps_of(masked_agent(several, (6,), 0), 60, rng)
    valid = torch.from_numpy(rng.random(60) < 0.6)
    steps["advantage"][~valid] = np.nan
    steps["weight"] = torch.from_numpy(np.exp(rng.normal(size=60)).astype(np.float32))
    observation, found = steps.pop("observation"), []
    inputs = PpoInputs(agent={"observation": observation}, **steps, valid=valid)
    for update in ("flat", "autograd"):
        agent = masked_agent(several, (6,), 0)
        more = {"epochs": 20, "minibatches": 4, "learning_rate": 3e-4, **options}
        algorithm = PPO(agent, **{**SETTINGS, **more}, update=update)
        algorithm.construct_agent_inputs = lambda samples: inputs
        # Given to this object only: the class's method is what a flat update replaces.
        algorithm._updates.overrides = lambda name: False
        diagnostics = dict(algorithm.optimize_agent(60, None))
        assert algorithm.update_method == update
        found.append((parameters(agent), diagnostics))
    (mine, some), (theirs, others) = found
    assert some == pytest.approx(others, rel=1e-3, abs=1e-5)
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-6, err_msg=name)


def test_masks_of_several_agents_are_their_own():
    agents = IndependentAgents(
        {"one": masked_agent(False, (4,), 1), "two": masked_agent(True, (5,), 2)}
    )
    rng = np.random.default_rng(0)
    steps = {name: steps_of(one, 20, rng) for name, one in agents.agents.items()}
    algorithm = MultiAgentPPO(agents, **SETTINGS, update="flat")
    names = ("log_prob", "value", "advantage", "return_")
    inputs = MultiAgentPpoInputs(
        agent={"observation": NamedTuple(**{k: v["observation"] for k, v in steps.items()})},
        action=NamedTuple(**{name: each["action"] for name, each in steps.items()}),
        **{name: torch.stack([each[name] for each in steps.values()], dim=1) for name in names},
    )
    flat = algorithm._updates.start_batch(inputs, None)
    flat.shuffle(torch.arange(20), [20])
    flat.loss(0, 20, algorithm._coefficients())
    flat.backward()
    expected = [
        gradients(one, steps[name], torch.float64)[2] for name, one in agents.agents.items()
    ]
    np.testing.assert_allclose(flat.adam.gradients, np.concatenate(expected), atol=1e-6)


def test_a_mask_that_forbids_everything_is_ignored():
    agent = masked_agent(True, (4,), 0)
    seen = torch.randn(5, SIZE)
    masks = [torch.full((5, sum(CHOICES)), number) for number in (0, 1)]
    first, second = [agent.model(NamedTuple(seen=seen, mask=mask)).params for mask in masks]
    assert torch.equal(first, second)


def test_a_choice_without_an_allowed_action_has_no_finite_loss():
    agent = masked_agent(True, (4,), 0)
    steps = steps_of(agent, 6, np.random.default_rng(0))
    steps["observation"].mask[2, :3] = 0
    inputs = PpoInputs(agent={"observation": steps.pop("observation")}, **steps)
    algorithm = PPO(agent, **SETTINGS, update="flat")
    flat = algorithm._updates.start_batch(inputs, None)
    flat.shuffle(torch.arange(6), [6])
    assert np.isnan(flat.loss(0, 6, algorithm._coefficients())[0])
    assert np.isnan(PPO(agent, **SETTINGS, update="autograd").loss(inputs)[0].item())


def test_a_mask_needs_parts_and_logits():
    with pytest.raises(ValueError, match=r"PgModel: action_mask: expected an encoder .* got 3"):
        PgModel(3, CategoricalHead(2), (), 0, action_mask="mask")
    encoder = TreeEncoder({"seen": FlatEncoder((SIZE,))})
    with pytest.raises(TypeError, match="expected a head with logits, got a GaussianHead"):
        PgModel(encoder, GaussianHead(2, 0.0), (), 0, action_mask="mask")


def test_a_mask_of_another_size_or_name_is_refused():
    agent = masked_agent(False, (), 0)
    seen = torch.zeros(2, SIZE)
    with pytest.raises(
        ValueError, match=r"action_mask 'mask': expected 6 numbers .* got shape \(5,\)"
    ):
        agent.step(NamedTuple(seen=seen, mask=torch.ones(2, 5)))
    with pytest.raises(ValueError, match="mask"):
        agent.step(NamedTuple(seen=seen, legal=torch.ones(2, 6)))
