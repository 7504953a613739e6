from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from off_policy_setup import (
    BOX,
    Prioritized,
    batch_of,
    fixed_noise,
    parameters,
    sac,
    sac_agent,
    td3,
    td3_agent,
)
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from parllel.torch import TD3


def network(weights, x):
    """A fully connected network with rectifiers, of a list of weights and biases."""
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    for weight, bias in layers[:-1]:
        x = torch.relu(x @ weight.T + bias)
    return x @ layers[-1][0].T + layers[-1][1]


def twins(weights, observation, action):
    x = torch.cat([observation, action], dim=1)
    half = len(weights) // 2
    return [network(part, x)[:, 0] for part in (weights[:half], weights[half:])]


def unit(action):
    low, high = (torch.tensor(x, dtype=action.dtype) for x in (BOX.low, BOX.high))
    return 2 * (action - low) / (high - low) - 1


def sample(outputs, noise):
    mean, log_std = outputs[:, :2], outputs[:, 2:]
    distribution = TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform(cache_size=1))
    action = torch.tanh(mean + log_std.exp() * noise)
    return action, distribution.log_prob(action).sum(dim=1)


class PlainSac:
    """SAC in plain PyTorch, independent of the library, in any dtype."""

    def __init__(self, algorithm, dtype):
        def copies(tensors):
            return [p.detach().to(dtype).clone().requires_grad_() for p in tensors]

        self.dtype = dtype
        agent = algorithm.agent
        self.policy, self.critics = (
            copies(agent.policy.parameters()),
            copies(agent.critics.parameters()),
        )
        self.target = copies(algorithm.targets["critics"].module.parameters())
        self.log_alpha = algorithm.log_temperature.detach().to(dtype).clone().requires_grad_()
        self.optimizers = [
            torch.optim.Adam(part, lr=1e-2)
            for part in (self.critics, self.policy, [self.log_alpha])
        ]

    def fields(self, batch):
        names = ("observation", "action", "reward", "next_observation", "discount", "weight")
        return [torch.from_numpy(getattr(batch, name)).to(self.dtype) for name in names]

    def critic_loss(self, batch, noise):
        s, a, r, s2, discount, weight = self.fields(batch)
        with torch.no_grad():
            a2, log_prob = sample(network(self.policy, s2), noise.to(self.dtype))
            value = torch.minimum(*twins(self.target, s2, a2)) - self.log_alpha.exp() * log_prob
            y = r + discount * value
        return sum((weight * (q - y) ** 2).mean() for q in twins(self.critics, s, unit(a))) / 2

    def policy_loss(self, batch, noise):
        s = self.fields(batch)[0]
        a, log_prob = sample(network(self.policy, s), noise.to(self.dtype))
        value = torch.minimum(*twins(self.critics, s, a))
        return (self.log_alpha.exp().detach() * log_prob - value).mean(), log_prob.detach()

    def update(self, batch, first, second):
        critic_loss = self.critic_loss(batch, first)
        self.take(0, critic_loss)
        policy_loss, log_prob = self.policy_loss(batch, second)
        self.take(1, policy_loss)
        self.take(2, -(self.log_alpha * (log_prob - 2)).mean())
        for old, new in zip(self.target, self.critics, strict=True):
            old.data.mul_(0.9).add_(new.data, alpha=0.1)
        return critic_loss.item(), policy_loss.item()

    def take(self, number, loss):
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        self.optimizers[number].step()


def largest_difference(found, expected):
    """The largest difference, relative to the largest entry."""
    pairs = list(zip(found, expected, strict=True))
    scale = max(float(two.detach().abs().max()) for _, two in pairs)
    return (
        max(
            float((one.detach().double() - two.detach().double()).abs().max()) for one, two in pairs
        )
        / scale
    )


def test_gradients_equal_those_in_float64():
    algorithm, batch = sac(), batch_of()
    plain = PlainSac(algorithm, torch.float64)
    draws = fixed_noise(algorithm)
    tensors = algorithm._tensors.of(batch)
    loss, _, _ = algorithm.critic_loss(tensors)
    found = torch.autograd.grad(loss, list(algorithm.agent.critics.parameters()))
    expected = torch.autograd.grad(plain.critic_loss(batch, draws[0]), plain.critics)
    assert largest_difference(found, expected) < 1e-6
    loss, _, _ = algorithm.policy_loss(tensors)
    found = torch.autograd.grad(loss, list(algorithm.agent.policy.parameters()))
    expected = torch.autograd.grad(plain.policy_loss(batch, draws[1])[0], plain.policy)
    assert largest_difference(found, expected) < 1e-6


@pytest.mark.parametrize("update", ["auto", "autograd"])
def test_updates_equal_plain_torch(update):
    algorithm = sac(update=update)
    plain = PlainSac(algorithm, torch.float32)
    draws = fixed_noise(algorithm)
    for seed in range(4):
        found = algorithm.optimize_agent(0, batch_of(seed=seed))
        losses = plain.update(batch_of(seed=seed), *draws[-2:])
        assert float(found["critic_loss"]) == pytest.approx(losses[0], rel=1e-5)
        assert float(found["policy_loss"]) == pytest.approx(losses[1], rel=1e-4)
    agent = algorithm.agent
    assert largest_difference(agent.policy.parameters(), plain.policy) < 1e-5
    assert largest_difference(agent.critics.parameters(), plain.critics) < 1e-5
    assert largest_difference(algorithm.targets["critics"].module.parameters(), plain.target) < 1e-5
    torch.testing.assert_close(algorithm.log_temperature, plain.log_alpha)
    assert float(found["temperature"]) != pytest.approx(0.7)


def test_td3_updates_equal_plain_torch():
    agent = td3_agent()
    algorithm = td3(agent)
    policy, critics = (
        [p.detach().clone().requires_grad_() for p in module.parameters()]
        for module in (agent.policy, agent.critics)
    )
    old_policy, old_critics = ([p.detach().clone() for p in part] for part in (policy, critics))
    steps = {
        name: torch.optim.Adam(part, lr=1e-2)
        for name, part in (("policy", policy), ("critics", critics))
    }
    draws = fixed_noise(algorithm)
    for number in range(5):
        batch = batch_of(seed=number)
        found = algorithm.optimize_agent(0, batch)
        s, a, r, s2, discount, weight = (
            torch.from_numpy(getattr(batch, name))
            for name in (
                "observation",
                "action",
                "reward",
                "next_observation",
                "discount",
                "weight",
            )
        )
        a2 = torch.tanh(network(old_policy, s2)) + (0.2 * draws[-1]).clamp(-0.3, 0.3)
        y = r + discount * torch.minimum(*twins(old_critics, s2, a2.clamp(-1, 1)))
        loss = sum((weight * (q - y) ** 2).mean() for q in twins(critics, s, unit(a))) / 2
        steps["critics"].zero_grad()
        loss.backward()
        steps["critics"].step()
        assert float(found["critic_loss"]) == pytest.approx(loss.item(), rel=1e-5)
        assert ("policy_loss" in found) == (number % 2 == 1)
        if number % 2 == 1:
            loss = -twins(critics, s, torch.tanh(network(policy, s)))[0].mean()
            steps["policy"].zero_grad()
            loss.backward()
            steps["policy"].step()
            for old, new in ((old_policy, policy), (old_critics, critics)):
                for one, other in zip(old, new, strict=True):
                    one.mul_(0.9).add_(other.detach(), alpha=0.1)
    assert largest_difference(agent.policy.parameters(), policy) < 1e-5
    assert largest_difference(agent.critics.parameters(), critics) < 1e-5
    assert largest_difference(algorithm.targets["policy"].module.parameters(), old_policy) < 1e-5
    assert largest_difference(algorithm.targets["critics"].module.parameters(), old_critics) < 1e-5


def bandit(rng, n=64):
    """Transitions of one step each, whose reward is highest for the action 1.5 of BOX's first dimension."""
    action = rng.uniform(BOX.low, BOX.high, (n, 2)).astype(np.float32)
    observation = np.ones((n, 3), np.float32)
    batch = batch_of(n)
    batch.observation[:], batch.next_observation[:] = observation, np.nan
    batch.action[:] = action
    batch.reward[:] = -np.square(action[:, 0] - 1.5)
    batch.discount[:] = 0
    return batch


@pytest.mark.parametrize("make", [sac, td3])
def test_a_bandit_is_learned(make):
    agent = {sac: sac_agent, td3: td3_agent}[make](hidden=(32,))
    algorithm = make(agent, seed=1)
    rng = np.random.default_rng(0)
    if make is sac:
        algorithm.target_entropy = -4.0
    for _ in range(600):
        batch = bandit(rng)
        # Observations after the end of an episode may be anything, as long as the networks stay finite.
        batch.next_observation[:] = 0
        algorithm.optimize_agent(0, batch)
    agent.eval_mode()
    action, info = agent.step(torch.ones(1, 3))
    assert info is None
    assert float(action[0, 0]) == pytest.approx(1.5, abs=0.25)


def test_terminated_steps_take_nothing_from_what_follows():
    algorithm, batch = sac(), batch_of()
    batch.discount[:3] = 0
    batch.next_observation[:3] = np.nan
    draws = fixed_noise(algorithm)
    target = algorithm.target(algorithm._tensors.of(batch))
    assert len(draws) == 1
    torch.testing.assert_close(target[:3], torch.from_numpy(batch.reward[:3]))
    assert torch.isfinite(target).all()


def test_a_fixed_temperature_is_not_learned():
    algorithm = sac(learn_temperature=False)
    found = algorithm.optimize_agent(0, batch_of())
    assert "temperature_loss" not in found
    assert float(algorithm.temperature) == pytest.approx(0.7)
    assert sorted(algorithm.optimizers) == ["critics", "policy"]


def test_temperature_falls_while_entropy_is_high():
    algorithm = sac(target_entropy=-100.0)
    for seed in range(5):
        algorithm.optimize_agent(0, batch_of(seed=seed))
    assert float(algorithm.temperature) < 0.7
    algorithm = sac(target_entropy=100.0)
    for seed in range(5):
        algorithm.optimize_agent(0, batch_of(seed=seed))
    assert float(algorithm.temperature) > 0.7


@pytest.mark.parametrize("make", [sac, td3])
def test_priorities_are_mean_absolute_errors(make):
    algorithm = make()
    replay = Prioritized()
    batch = batch_of(replay=replay)
    fixed_noise(algorithm)
    target = algorithm.target(algorithm._tensors.of(batch))
    agent = algorithm.agent
    action = agent.scale.to_unit(torch.from_numpy(batch.action))
    values = agent.critics(torch.from_numpy(batch.observation), action).detach()
    fixed_noise(algorithm)
    algorithm.optimize_agent(0, batch)
    np.testing.assert_allclose(replay.errors, (values - target).abs().mean(dim=0), rtol=1e-5)


@pytest.mark.parametrize("make", [sac, td3])
def test_resumed_equals_uninterrupted(make):
    algorithm, other = make(), make()
    for seed in range(3):
        algorithm.optimize_agent(0, batch_of(seed=seed))
    other.agent.load_state(copy.deepcopy(algorithm.agent.state()))
    other.load_state(copy.deepcopy(algorithm.state()))
    for one in (algorithm, other):
        for seed in range(3, 6):
            one.optimize_agent(0, batch_of(seed=seed))
    for name in ("policy", "critics"):
        for one, two in zip(
            parameters(getattr(algorithm.agent, name)),
            parameters(getattr(other.agent, name)),
            strict=True,
        ):
            assert torch.equal(one, two)


@pytest.mark.parametrize("make", [sac, td3])
@pytest.mark.parametrize("field", ["reward", "observation"])
def test_what_is_not_finite_changes_nothing(make, field):
    algorithm = make()
    batch = batch_of()
    getattr(batch, field)[0] = np.inf
    agent = algorithm.agent
    before = parameters(agent.policy) + parameters(agent.critics)
    with pytest.raises(FloatingPointError, match="critics: the loss is not finite"):
        algorithm.optimize_agent(0, batch)
    after = parameters(agent.policy) + parameters(agent.critics)
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def test_losses_can_be_overridden():
    calls = []

    class Mine(TD3):
        def policy_loss(self, batch):
            calls.append(len(batch.reward))
            return super().policy_loss(batch)

    from off_policy_setup import TD3_SETTINGS

    algorithm = Mine(td3_agent(), **{**TD3_SETTINGS, "policy_delay": 1})
    algorithm.optimize_agent(0, batch_of())
    assert calls == [32]


@pytest.mark.parametrize("make", [sac, td3])
@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"tau": 1.5}, "tau: expected a number of at most 1"),
        ({"learning_rate": 0}, "learning_rate: expected a number above 0"),
        ({"random_steps": -1}, "random_steps: expected a number of steps"),
        ({"update": "fast"}, "update: expected 'auto'"),
        ({"seed": -1}, "seed: expected 0 or more"),
    ],
)
def test_wrong_arguments(make, settings, match):
    with pytest.raises(ValueError, match=match):
        make(**settings)


def test_wrong_agents():
    with pytest.raises(TypeError, match="expected a SacAgent, got a TD3Agent"):
        sac(td3_agent())
    with pytest.raises(TypeError, match="expected a TD3Agent, got a SacAgent"):
        td3(sac_agent())
    with pytest.raises(TypeError, match="critics: expected a Module"):
        type(sac_agent())(sac_agent().policy, 3, BOX, seed=0)


def test_actions_are_random_at_first():
    algorithm = sac()
    algorithm.before_sampling(9)
    assert algorithm.agent.random_actions
    algorithm.before_sampling(10)
    assert not algorithm.agent.random_actions


def test_values_of_the_wrong_shape_are_refused():
    agent = sac_agent()
    agent.critics.forward = lambda observation, action: action[:, 0]
    with pytest.raises(ValueError, match=r"expected values of shape \(n_critics, 32\)"):
        sac(agent).optimize_agent(0, batch_of())
