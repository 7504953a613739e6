"""Several agents behind one: independent ones, and ensembles that share a model."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from multi_agent_setup import (
    LIVES,
    NAMES,
    build,
    independent,
    make_env,
    make_twins,
    shared,
    single_agents,
)
from torch import distributions as reference
from torch import nn

from parllel.agents import load_weights, weights_of
from parllel.buffers import NamedTuple
from parllel.testing.dummy_parallel_env import counting_observation
from parllel.torch import (
    Categorical,
    CategoricalHead,
    CategoricalPgAgent,
    Gaussian,
    GaussianHead,
    PgModel,
    RecurrentPgAgent,
)
from parllel.torch.agents.ensemble_agent import EnsembleAgent
from parllel.torch.agents.independent_agents import IndependentAgents
from parllel.torch.distributions.ensemble import EnsembleDistribution
from parllel.torch.distributions.gaussian import GaussianParams
from parllel.torch.models.shared_model import SharedModel

KINDS = {"independent": (independent, make_env), "shared": (shared, make_twins)}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request):
    return request.param


def leaf(tree, name):
    return getattr(tree, name)


def alone(agent, name):
    """Return a function that evaluates one agent's observations [N, n] by itself."""
    if isinstance(agent, IndependentAgents):
        return lambda observation: agent.agents[name].model(observation)
    ids = torch.eye(len(NAMES))[NAMES.index(name)]
    model = agent.model.model
    return lambda observation: model(
        torch.cat([observation, ids.expand(len(observation), len(NAMES))], dim=1)
    )


def action_and_log_prob(params, noise):
    """Draw as the distributions do, by hand."""
    if isinstance(params, GaussianParams):
        action = params.mean + params.log_std.exp() * noise
        normal = reference.Normal(params.mean, params.log_std.exp())
        return action, normal.log_prob(action).sum(-1)
    action = (params + noise).argmax(-1)
    return action, reference.Categorical(logits=params).log_prob(action)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5, check_dtype=False)


def test_every_agent_acts_on_its_own_observation_with_its_own_noise(kind):
    make, factory = kind
    agent, T, B = make(), 8, 4
    noise = make().draw_noise(T, B)
    with build(agent, factory, T, B) as sampler, torch.no_grad():
        samples, _ = sampler.collect_batch(0)
        for name in NAMES:
            seen = torch.from_numpy(np.array(leaf(samples.agent.observation, name)))
            params, value = alone(agent, name)(seen.flatten(0, 1))
            action, log_prob = action_and_log_prob(params, leaf(noise, name).flatten(0, 1))
            stored = samples.agent.agent_info
            for found, expected in (
                (samples.agent.action, action),
                (stored.log_prob, log_prob),
                (stored.value, value),
            ):
                close(torch.from_numpy(np.array(leaf(found, name))).flatten(0, 1), expected)


def test_values_after_the_batch_and_of_final_observations(kind):
    make, factory = kind
    agent, T, B = make(), 8, 4
    with build(agent, factory, T, B) as sampler, torch.no_grad():
        samples, _ = sampler.collect_batch(0)
        assert np.flatnonzero(np.asarray(samples.env.truncated)[:, 0]).tolist() == [4]
        for i, name in enumerate(NAMES):
            model = alone(agent, name)
            value = leaf(samples.agent.agent_info.value, name)
            behind = leaf(samples.agent.observation, name)
            seen = torch.from_numpy(np.array(behind[behind.last + 1]))
            close(torch.from_numpy(np.array(value[value.last + 1])), model(seen)[1])
            final_value = np.array(leaf(samples.agent.final_value, name))
            # fox and dog are gone by then, and see nothing; hen sees its last.
            last = counting_observation(i, 5)[: seen.shape[1]] / 100 * (LIVES[name] == 5)
            expected = model(torch.from_numpy(last.astype(np.float32))[np.newaxis])[1].item()
            np.testing.assert_allclose(final_value[4], expected, atol=1e-6)
            assert not np.delete(final_value, 4, axis=0).any()


def test_alternation_and_grouping_change_nothing(kind):
    make, factory = kind
    batches = []
    for alternating in (False, True):
        with build(make(), factory, alternating=alternating) as sampler:
            for n in range(2):
                samples, _ = sampler.collect_batch(n * 32)
            batches.append(
                {
                    f"{path}.{name}": np.array(leaf(tree, name))
                    for name in NAMES
                    for path, tree in (
                        ("action", samples.agent.action),
                        ("value", samples.agent.agent_info.value),
                        ("advantage", samples.agent.advantage),
                    )
                }
            )
    for path, array in batches[0].items():
        np.testing.assert_allclose(batches[1][path], array, atol=1e-5, err_msg=path)


def observation_of(make, n=6):
    sizes = dict.fromkeys(NAMES, 2) if make is shared else {"fox": 2, "hen": 3, "dog": 4}
    generator = torch.Generator().manual_seed(0)
    return NamedTuple(
        **{name: torch.randn(n, size, generator=generator) for name, size in sizes.items()}
    )


def test_evaluation_is_that_of_the_step(kind):
    make, _ = kind
    agent, observation = make(), observation_of(make)
    action, info = agent.step(observation)
    copied = NamedTuple(**{name: leaf(action, name).clone() for name in NAMES})
    log_prob, entropy, value = agent.evaluate(observation, copied)
    for name in NAMES:
        close(leaf(log_prob, name).detach(), leaf(info.log_prob, name).clone())
        close(leaf(value, name).detach(), leaf(info.value, name).clone())
        assert leaf(log_prob, name).requires_grad
        params, _ = alone(agent, name)(leaf(observation, name))
        if isinstance(params, GaussianParams):
            params_entropy = reference.Normal(params.mean, params.log_std.exp()).entropy().sum(-1)
        else:
            params_entropy = reference.Categorical(logits=params).entropy()
        close(leaf(entropy, name).detach(), params_entropy.detach())


def test_eval_mode_takes_the_mode_and_draws_nothing(kind):
    make, _ = kind
    agent, observation = make(), observation_of(make)
    agent.eval_mode()
    before = generators(agent)
    first, second = agent.step(observation)[0], agent.step(observation)[0]
    assert agent.draw_noise(2, 3) is None
    assert generators(agent) == before
    for name in NAMES:
        assert torch.equal(leaf(first, name), leaf(second, name))
        params, _ = alone(agent, name)(leaf(observation, name))
        best = params.mean if isinstance(params, GaussianParams) else params.argmax(-1)
        close(leaf(first, name).clone(), best.detach())
    agent.sample_mode()
    agent.step(observation)
    assert generators(agent) != before


def generators(agent):
    state = agent.state()
    states = [state] if "generator" in state else list(state["_others"].values())
    return [one["generator"].tobytes() for one in states]


def test_state_round_trip(kind):
    make, _ = kind
    agent, other, observation = make(), make(), observation_of(make)
    with torch.no_grad():
        for parameter in agent.model.parameters():
            parameter.add_(0.1)
    agent.draw_noise(2, 3)
    other.load_state(agent.state())
    mine, theirs = agent.step(observation), other.step(observation)
    for name in NAMES:
        assert torch.equal(leaf(mine[0], name), leaf(theirs[0], name))
        assert torch.equal(leaf(mine[1].value, name), leaf(theirs[1].value, name))
    json.dumps({name: list(np.shape(part)) for name, part in agent.state().items()})


def test_weights_that_travel_leave_the_noise_alone(kind):
    make, _ = kind
    trained, sampling, alone = make(), make(), make()
    with torch.no_grad():
        for parameter in trained.model.parameters():
            parameter.add_(0.1)
    for _ in range(2):
        # As an AsynchronousSampler's process does before each batch.
        load_weights(sampling, weights_of(trained))
        found, expected = sampling.draw_noise(2, 3), alone.draw_noise(2, 3)
        for name in NAMES:
            assert torch.equal(leaf(found, name), leaf(expected, name))
    for mine, theirs in zip(sampling.model.parameters(), trained.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_modes_reach_every_model(kind):
    agent = kind[0]()
    agent.train_mode()
    assert all(module.training for module in agent.model.modules() if list(module.parameters()))
    agent.sample_mode()
    assert not any(module.training for module in agent.models().values())


def test_groups_hold_every_parameter_once(kind):
    agent = kind[0]()
    groups = agent.learning_groups()
    assert [name for group in groups for name in group.names] == list(NAMES)
    parameters = [id(parameter) for group in groups for parameter in group.parameters]
    assert sorted(parameters) == sorted(map(id, agent.model.parameters()))
    assert len(groups) == (1 if isinstance(agent, EnsembleAgent) else 3)


# ---------------------------------------------------------------------- further inputs


class Guided(nn.Module):
    """Looks at a hint that a handler adds, and at the number of the agent."""

    def __init__(self):
        super().__init__()
        self.policy = nn.Linear(2, 3)

    def forward(self, observation, hint, agent_id=None):
        seen = observation["place"] if isinstance(observation, dict) else observation.place
        logits = self.policy(seen) + hint.unsqueeze(-1)
        value = logits.sum(-1)
        return logits, value if agent_id is None else value + 1000 * agent_id


def test_ids_and_further_inputs_reach_a_shared_model():
    model = Guided()
    agent = EnsembleAgent(
        SharedModel(model, ("a", "b"), one_hot=False),
        {"a": Categorical(3), "b": Categorical(3)},
        seed=0,
    )
    place = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(1))
    observation = NamedTuple(a=NamedTuple(place=place[0]), b=NamedTuple(place=place[1]))
    hint = torch.arange(5.0)
    with torch.no_grad():
        value = agent.value(observation, hint=hint)
        for i, name in enumerate("ab"):
            expected = (model.policy(place[i]) + hint[:, None]).sum(-1) + 1000 * i
            close(leaf(value, name).clone(), expected)


def test_further_inputs_reach_each_of_independent_agents():
    agent = IndependentAgents({n: CategoricalPgAgent(Guided(), 3, seed=0) for n in "ab"})
    place = torch.zeros(4, 2)
    observation = NamedTuple(a=NamedTuple(place=place), b=NamedTuple(place=place))
    low, high = (agent.value(observation, hint=torch.full((4,), h)) for h in (0.0, 1.0))
    close(high.a - low.a, torch.full((4,), 3.0))
    close(high.b - low.b, torch.full((4,), 3.0))


@pytest.mark.parametrize("one_std", [False, True])
def test_a_shared_model_with_continuous_actions(one_std):
    inner = PgModel((2 + 2,), GaussianHead((2,), initial_log_std=-0.3), (), seed=0)
    if not one_std:

        class Spread(nn.Module):
            def forward(self, observation):
                params, value = inner(observation)
                return GaussianParams(params.mean, observation[:, :2] - 1), value

    model = SharedModel(inner if one_std else Spread(), ("a", "b"), one_hot=True)
    agent = EnsembleAgent(model, {"a": Gaussian((2,)), "b": Gaussian((2,))}, seed=0)
    observation = NamedTuple(a=torch.randn(5, 2), b=torch.randn(5, 2))
    action, info = agent.step(observation)
    for i, name in enumerate("ab"):
        ids = torch.eye(2)[i].expand(5, 2)
        with torch.no_grad():
            mean = inner(torch.cat([leaf(observation, name), ids], dim=1))[0].mean
        log_std = torch.full((2,), -0.3) if one_std else leaf(observation, name) - 1
        expected = reference.Normal(mean, log_std.exp()).log_prob(leaf(action, name)).sum(-1)
        close(leaf(info.log_prob, name).clone(), expected)


# ---------------------------------------------------------------------- the distribution


def test_an_ensemble_is_its_distributions_side_by_side():
    generator = torch.Generator().manual_seed(0)
    ensemble = EnsembleDistribution({"a": Categorical(4), "b": Gaussian((2,))})

    def draw(shift):
        return NamedTuple(
            a=torch.randn(50, 4, generator=generator, dtype=torch.float64) + shift,
            b=GaussianParams(
                torch.randn(50, 2, generator=generator, dtype=torch.float64),
                torch.full((2,), 0.1 * shift, dtype=torch.float64),
            ),
        )

    p, q = draw(0.0), draw(1.0)
    theirs = {
        "a": (reference.Categorical(logits=p.a), reference.Categorical(logits=q.a)),
        "b": tuple(
            reference.Independent(reference.Normal(x.b.mean, x.b.log_std.exp()), 1) for x in (p, q)
        ),
    }
    action = NamedTuple(**{name: pair[0].sample() for name, pair in theirs.items()})
    log_prob, entropy = ensemble.log_prob_and_entropy(p, action)
    divergence = ensemble.kl_divergence(p, q)
    for name, (mine, other) in theirs.items():
        close(leaf(log_prob, name), mine.log_prob(leaf(action, name)))
        close(leaf(ensemble.log_prob(p, action), name), leaf(log_prob, name))
        close(leaf(entropy, name), mine.entropy())
        close(leaf(ensemble.entropy(p), name), leaf(entropy, name))
        close(leaf(divergence, name), reference.kl_divergence(mine, other))
    likelihood = theirs["a"][0].log_prob(action.a).exp() * theirs["b"][0].log_prob(action.b).exp()
    close(ensemble.joint(log_prob).exp(), likelihood)
    close(ensemble.joint({"a": entropy.a, "b": entropy.b}), entropy.a + entropy.b)
    assert torch.equal(ensemble.mode(p).a, p.a.argmax(-1))
    noise = ensemble.draw_noise(torch.Generator().manual_seed(3), 50, 1)
    again = ensemble.draw_noise(torch.Generator().manual_seed(3), 50, 1)
    assert noise.a.shape == (50, 1, 4)
    assert torch.equal(noise.b, again.b)
    row = NamedTuple(a=noise.a[:, 0], b=noise.b[:, 0])
    drawn, drawn_log_prob = ensemble.sample_and_log_prob(p, row)
    close(drawn.b, p.b.mean + p.b.log_std.exp() * row.b)
    assert torch.equal(ensemble.sample(p, row).a, drawn.a)
    close(drawn_log_prob.a, theirs["a"][0].log_prob(drawn.a))


# ---------------------------------------------------------------------- what is refused


def test_agents_that_share_parameters_are_not_independent():
    model = PgModel((2,), CategoricalHead(3), (), seed=0)
    agents = {name: CategoricalPgAgent(model, 3, seed=0) for name in "ab"}
    with pytest.raises(ValueError, match=r"'a' and 'b' share parameters. Use an EnsembleAgent"):
        IndependentAgents(agents)


def test_nobody_is_refused():
    with pytest.raises(ValueError, match="IndependentAgents: expected at least one agent"):
        IndependentAgents({})
    with pytest.raises(ValueError, match="EnsembleDistribution: expected at least one"):
        EnsembleDistribution({})
    with pytest.raises(ValueError, match="SharedModel: names: expected at least one agent"):
        SharedModel(nn.Linear(1, 1), (), one_hot=True)


def test_agents_with_a_memory_are_refused():
    agent = RecurrentPgAgent(nn.Linear(2, 3), Categorical(3), seed=0)
    with pytest.raises(ValueError, match="expected agents without recurrent state"):
        IndependentAgents({"a": agent})


def test_observations_without_an_agent_are_refused():
    observation = NamedTuple(fox=torch.zeros(3, 2), dog=torch.zeros(3, 4))
    expected = r"no field 'hen': 'hen' is not one of \['dog', 'fox'\]"
    with pytest.raises(ValueError, match=expected):
        independent().step(observation)
    with pytest.raises(ValueError, match=expected):
        shared().step(observation)


def test_one_hot_wants_one_tensor_for_each_agent():
    observation = NamedTuple(**{name: NamedTuple(x=torch.zeros(3, 2)) for name in NAMES})
    with pytest.raises(TypeError, match="one_hot: expected observations that are one tensor"):
        shared().step(observation)


def test_states_of_other_agents_are_refused():
    with pytest.raises(ValueError, match=r"expected \['fox', 'hen', 'dog'\], got \['fox'\]"):
        independent().load_state({"fox": single_agents()["fox"].state()})


class Column(nn.Module):
    def forward(self, observation):
        logits = NamedTuple(**{name: leaf(observation, name)[:, :2] for name in NAMES})
        values = NamedTuple(**{name: leaf(observation, name)[:, :1] for name in NAMES})
        return logits, values


def test_values_of_a_wrong_shape_are_refused():
    agent = EnsembleAgent(Column(), dict.fromkeys(NAMES, Categorical(2)), seed=0)
    action = NamedTuple(**{name: torch.zeros(6, dtype=torch.int64) for name in NAMES})
    with pytest.raises(ValueError, match=r"Column: expected values of shapes .*'fox': \(6,\)"):
        agent.evaluate(observation_of(shared), action)
