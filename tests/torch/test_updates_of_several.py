"""Compiled updates of several agents against autograd in float64."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from multi_agent_setup import NAMES, build, independent, make_env, make_twins, shared
from ppo_setup import HEADS, N_INPUTS, SETTINGS, agent_of
from torch import nn

from parllel.buffers.named_tuple import NamedTuple
from parllel.torch import (
    Categorical,
    CategoricalHead,
    Gaussian,
    GaussianHead,
    MlpEncoder,
    PgModel,
)
from parllel.torch.agents.ensemble_agent import EnsembleAgent
from parllel.torch.agents.independent_agents import IndependentAgents
from parllel.torch.algos.multi_agent_ppo import MultiAgentPPO, MultiAgentPpoInputs
from parllel.torch.models.shared_model import SharedModel


def ensemble(kind, n_agents, hidden, seed, *, activation="tanh", trunk=()):
    """Return agents that share a model."""
    names = [f"agent_{k}" for k in range(n_agents)]
    generator = torch.Generator().manual_seed(seed)
    inputs = N_INPUTS + n_agents
    if trunk:
        inputs = MlpEncoder(inputs, trunk, generator=generator, activation=activation)
    head, each = CategoricalHead(4), Categorical(4, start=2)
    if kind in ("gaussian", "state_dependent"):
        head = GaussianHead(2, initial_log_std=-0.3, state_dependent=kind == "state_dependent")
        each = Gaussian(2)
    model = PgModel(inputs, head, hidden, seed=generator, policy_gain=1.0, activation=activation)
    # The ids are numbered in another order than the agents' columns.
    together = SharedModel(model, names[::-1], one_hot=True)
    return EnsembleAgent(together, dict.fromkeys(names, each), seed=seed)


def separate(heads, hidden, seed, **options):
    agents = {
        f"agent_{k}": agent_of(head, hidden, seed + k, **options) for k, head in enumerate(heads)
    }
    return IndependentAgents(agents)


def inputs_of(agent, n, *, seed, absent):
    """Return made-up steps that earlier policies took. absent: whether agents miss some of them."""
    rng = np.random.default_rng(seed)
    K = len(agent.names)

    def normal(*shape):
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    observation = NamedTuple(**{name: normal(n, N_INPUTS) for name in agent.names})
    action = NamedTuple(
        **{name: part.clone() for name, part in agent.step(observation)[0]._asdict().items()}
    )
    with torch.no_grad():
        log_prob, _, value = agent.evaluate(observation, action)
    return MultiAgentPpoInputs(
        agent={"observation": observation},
        action=action,
        log_prob=torch.stack(list(log_prob), dim=1) + 0.3 * normal(n, K),
        value=torch.stack(list(value), dim=1) + 0.3 * normal(n, K),
        advantage=normal(n, K),
        return_=normal(n, K),
        alive=torch.from_numpy(rng.random((n, K)) < 0.6) if absent else None,
    )


def as_double(inputs):
    def wide(value):
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.double() if is_float else value

    fields = {name: wide(value) for name, value in vars(inputs).items()}
    observation = inputs.agent["observation"]._asdict()
    fields["agent"] = {
        "observation": NamedTuple(**{name: wide(part) for name, part in observation.items()})
    }
    return MultiAgentPpoInputs(**fields)


def gradients(agent, inputs, dtype, **options):
    """Return loss, diagnostics and gradients of autograd in a dtype."""
    twin = copy.deepcopy(agent)
    twin.model.to(dtype)
    algorithm = MultiAgentPPO(twin, **{**SETTINGS, **options}, update="autograd")
    loss, diagnostics = algorithm.loss(as_double(inputs) if dtype == torch.float64 else inputs)
    loss.backward()
    found = torch.cat([p.grad.reshape(-1) for p in twin.model.parameters()])
    return loss.item(), diagnostics, found.double().numpy()


@given(
    heads=st.lists(st.sampled_from(HEADS), min_size=1, max_size=4),
    together=st.booleans(),
    hidden=st.lists(st.integers(1, 40), max_size=2),
    trunk=st.lists(st.integers(1, 9), max_size=2),
    n=st.integers(2, 50),
    absent=st.booleans(),
    options=st.fixed_dictionaries(
        {
            "ratio_clip": st.sampled_from([0.05, 0.2]),
            "value_clip": st.sampled_from([None, 0.1]),
            "value_loss_coeff": st.sampled_from([0.0, 0.5]),
            "entropy_loss_coeff": st.sampled_from([0.0, 1.0]),
        }
    ),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=50)
def test_gradients_are_autograds_in_float64(
    heads, together, hidden, trunk, n, absent, options, seed
):
    if together:
        agent = ensemble(heads[0], len(heads), hidden, seed, trunk=trunk)
    else:
        agent = separate(heads, hidden, seed, trunk=trunk)
    inputs = inputs_of(agent, n, seed=seed, absent=absent)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    half = n // 2
    # The second of two minibatches, which must read neither the first's steps nor its buffers.
    chosen = inputs.select(order[half:])
    loss, diagnostics, expected = gradients(agent, chosen, torch.float64, **options)
    _, _, usual = gradients(agent, chosen, torch.float32, **options)
    if absent:
        # What an agent that took no part left behind is not read.
        inputs.advantage[~inputs.alive] = np.nan
    algorithm = MultiAgentPPO(agent, **{**SETTINGS, **options}, update="flat")
    flat = algorithm._updates.start_batch(inputs, inputs.alive)
    flat.shuffle(order, [half, n])
    flat.loss(0, half, algorithm._coefficients())
    flat.backward()
    found, sums = flat.loss(half, n, algorithm._coefficients())
    flat.backward()
    # Where terms cancel, float32 itself is further off: in autograd as well.
    atol = max(1e-6 * abs(expected).max(), 3 * abs(usual - expected).max())
    np.testing.assert_allclose(flat.adam.gradients, expected, rtol=0, atol=atol)
    assert found == pytest.approx(loss, rel=1e-5, abs=1e-5)
    means = algorithm._diagnostics_of(sums)
    assert means.keys() == diagnostics.keys()
    for name, value in diagnostics.items():
        assert means[name] == pytest.approx(value.item(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("make", [partial(independent, (8,)), shared])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"value_clip": 0.1, "entropy_loss_coeff": 0.0, "clip_grad_norm": None},
        {"learning_rate_anneal_steps": 500, "minibatches": 5},
        {"kl_limit": 1e-6},
    ],
    ids=["default", "value_clip", "anneal", "kl_limit"],
)
@pytest.mark.few(2)
def test_parameters_are_autograds_after_80_updates(make, options):
    results = []
    for update in ("auto", "autograd"):
        agent = make()
        factory = make_env if hasattr(agent, "agents") else make_twins
        more = {"learning_rate": 3e-4, "epochs": 5, "minibatches": 4, **options}
        algorithm = MultiAgentPPO(agent, **{**SETTINGS, **more}, update=update)
        with build(agent, factory) as sampler:
            batch = sampler.collect_batch(0)[0]
            diagnostics = [dict(algorithm.optimize_agent(32 * i, batch)) for i in range(1, 5)]
        results.append((agent, diagnostics, algorithm.update_method))
    (mine, found, method), (theirs, wanted, other) = results
    assert (method, other) == ("flat", "autograd")
    pairs = zip(mine.model.parameters(), theirs.model.parameters(), strict=True)
    for one, two in pairs:
        np.testing.assert_allclose(one.detach(), two.detach(), rtol=0, atol=1e-6)
    for one, two in zip(found, wanted, strict=True):
        assert one == pytest.approx(two, rel=1e-3, abs=1e-5, nan_ok=True)
    if options.get("kl_limit"):
        assert {one["early_stop"] for one in found} >= {1}


@pytest.mark.parametrize("make", [partial(independent, (8,)), shared])
def test_a_checkpoint_continues_with_another_way(make):
    results = []
    for ways in (("flat", "autograd", "flat"), ("autograd",) * 3):
        agent, saved = make(), None
        factory = make_env if hasattr(agent, "agents") else make_twins
        with build(agent, factory) as sampler:
            batch = sampler.collect_batch(0)[0]
            for way in ways:
                settings = {**SETTINGS, "learning_rate": 3e-4}
                algorithm = MultiAgentPPO(agent, **settings, update=way)
                if saved is not None:
                    algorithm.load_state(copy.deepcopy(saved))
                algorithm.optimize_agent(32, batch)
                saved = algorithm.state()
        results.append(list(agent.model.parameters()))
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one.detach(), two.detach(), rtol=0, atol=1e-6)


# ---------------------------------------------------------------- what falls back


class OtherAgents(IndependentAgents):
    def evaluate(self, observation, action, **inputs):
        return super().evaluate(observation, action, **inputs)


class OtherEnsemble(EnsembleAgent):
    pass


class OtherShared(SharedModel):
    pass


class OtherLoss(MultiAgentPPO):
    def loss(self, inputs):
        return super().loss(inputs)


class Central(nn.Module):
    """Every agent sees what all see."""

    def __init__(self):
        super().__init__()
        self.policy, self.critic = nn.Linear(2 * len(NAMES), 3), nn.Linear(2 * len(NAMES), 1)

    def forward(self, observation):
        x = torch.cat([getattr(observation, name) for name in NAMES], dim=1)
        params, value = self.policy(x), self.critic(x).squeeze(-1)
        return dict.fromkeys(NAMES, params), dict.fromkeys(NAMES, value)


class WithId(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = PgModel(2, CategoricalHead(3), (), seed=0)

    def forward(self, observation, agent_id):
        return self.inner(observation + agent_id.unsqueeze(1))


def other_agents():
    return OtherAgents(independent((8,)).agents)


def hooked_agents():
    agent = independent((8,))
    agent.agents["hen"].model.critic.register_forward_hook(lambda *args: None)
    return agent


def agents_with_a_method():
    agent = independent((8,))
    agent.agents["dog"].evaluate = agent.agents["dog"].evaluate
    return agent


def other_ensemble():
    one = shared()
    return OtherEnsemble(one.model, one.distribution.distributions, seed=5)


def other_shared():
    model = OtherShared(PgModel(5, CategoricalHead(3), (), seed=4), NAMES, one_hot=True)
    return EnsembleAgent(model, dict.fromkeys(NAMES, Categorical(3)), seed=5)


def central():
    return EnsembleAgent(Central(), dict.fromkeys(NAMES, Categorical(3)), seed=5)


def with_agent_id():
    model = SharedModel(WithId(), NAMES, one_hot=False)
    return EnsembleAgent(model, dict.fromkeys(NAMES, Categorical(3)), seed=5)


def hooked_ensemble():
    agent = shared()
    agent.model.register_forward_pre_hook(lambda *args: None)
    return agent


@pytest.mark.parametrize(
    ("make", "kind", "why"),
    [
        (other_agents, MultiAgentPPO, "agent: expected PgAgent .* got OtherAgents"),
        (hooked_agents, MultiAgentPPO, "agent 'hen'.model.critic: expected a module without hooks"),
        (agents_with_a_method, MultiAgentPPO, "agent 'dog'.evaluate: expected the method"),
        (other_ensemble, MultiAgentPPO, "agent: expected .* got OtherEnsemble"),
        (other_shared, MultiAgentPPO, "agent.model: expected SharedModel itself, got OtherShared"),
        (central, MultiAgentPPO, "agent.model: expected SharedModel itself, got Central"),
        (with_agent_id, MultiAgentPPO, "one_hot=True, got one of .* with one_hot=False"),
        (hooked_ensemble, MultiAgentPPO, "agent.model: expected a module without hooks"),
        (shared, OtherLoss, "loss is overridden"),
    ],
)
@pytest.mark.few(4)
def test_agents_that_are_not_known_fall_back(make, kind, why):
    results = []
    for update in ("auto", "autograd"):
        torch.manual_seed(0)
        agent = make()
        factory = make_env if hasattr(agent, "agents") else make_twins
        algorithm = kind(agent, **SETTINGS, update=update)
        with build(agent, factory) as sampler:
            algorithm.optimize_agent(32, sampler.collect_batch(0)[0])
        results.append((agent, algorithm.update_method))
    (mine, method), (theirs, other) = results
    assert (method, other) == ("flat parameters", "autograd")
    for one, two in zip(mine.model.parameters(), theirs.model.parameters(), strict=True):
        np.testing.assert_allclose(one.detach(), two.detach(), rtol=0, atol=2e-6)
    with pytest.raises(TypeError if kind is OtherLoss else (TypeError, ValueError), match=why):
        kind(make(), **SETTINGS, update="flat")


def test_agents_of_one_model_with_other_choices_are_not_known():
    agent = shared()
    agent.distribution.distributions["hen"] = Categorical(3, start=1)
    with pytest.raises(ValueError, match="distribution of 'hen': expected the choices of 'fox'"):
        MultiAgentPPO(agent, **SETTINGS, update="flat")


def test_a_model_that_replaces_an_agents_is_learned_by_autograd():
    agent = independent((8,))
    algorithm = MultiAgentPPO(agent, **SETTINGS)
    with build(agent, make_env) as sampler:
        batch = sampler.collect_batch(0)[0]
        algorithm.optimize_agent(32, batch)
        assert algorithm.update_method == "flat"
        agent.agents["fox"].model = copy.deepcopy(agent.agents["fox"].model)
        algorithm.optimize_agent(64, batch)
        assert algorithm.update_method == "flat parameters"
