"""PPO for several agents: against PPO for one, and against a reference in plain numpy."""

from __future__ import annotations

import math

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
from ppo_setup import SETTINGS, perturb, ppo

from parllel.buffers import AgentSamples, EnvSamples, NamedArrayTuple, Samples
from parllel.torch.algos.multi_agent_ppo import MultiAgentPPO

TOGETHER = dict.fromkeys(LIVES, 5)  # nobody leaves before the others
TRUNCATED = dict.fromkeys(LIVES, "truncated")


@pytest.fixture(autouse=True)
def one_thread():
    """Keep networks this small from waiting for a second thread on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def multi_ppo(agent, **settings):
    return MultiAgentPPO(agent, **{**SETTINGS, **settings})


def array(tree, name):
    return np.asarray(getattr(tree, name), np.float64)


def own_samples(samples, name):
    """Return the samples as one agent by itself would have had them."""
    agent, env = samples.agent, samples.env
    return Samples(
        agent=AgentSamples(
            action=getattr(agent.action, name),
            agent_info=NamedArrayTuple(
                value=getattr(agent.agent_info.value, name),
                log_prob=getattr(agent.agent_info.log_prob, name),
            ),
            observation=getattr(agent.observation, name),
            advantage=getattr(agent.advantage, name),
            return_=getattr(agent.return_, name),
        ),
        env=EnvSamples(
            observation=getattr(env.observation, name),
            reward=env.reward,
            terminated=env.terminated,
            truncated=env.truncated,
            done=env.done,
            env_info=None,
        ),
    )


@pytest.mark.parametrize("clip_grad_norm", [None, 0.05])
def test_independent_agents_learn_as_if_each_had_a_ppo_of_its_own(clip_grad_norm):
    agent, alone = independent((8,)), single_agents((8,))
    algorithm = multi_ppo(agent, clip_grad_norm=clip_grad_norm, value_clip=0.1)
    algorithms = {
        name: ppo(one, clip_grad_norm=clip_grad_norm, value_clip=0.1) for name, one in alone.items()
    }
    with build(agent, lambda: make_env(TOGETHER, TRUNCATED), T=12) as sampler:
        for n in range(1, 4):
            samples, _ = sampler.collect_batch(n)
            diagnostics = algorithm.optimize_agent(48 * n, samples)
            for name, one in algorithms.items():
                theirs = one.optimize_agent(48 * n, own_samples(samples, name))
                for term in ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"):
                    assert diagnostics[f"{term}/{name}"] == pytest.approx(theirs[term], abs=1e-5)
                found = diagnostics[f"explained_variance/{name}"]
                assert found == pytest.approx(theirs["explained_variance"], rel=1e-5)
                mine, expected = agent.agents[name].state()["model"], alone[name].state()["model"]
                for parameter, value in expected.items():
                    np.testing.assert_allclose(mine[parameter], value, atol=1e-5, err_msg=name)
    assert not np.array_equal(
        expected["critic.layers.0.weight"],
        single_agents((8,))["dog"].state()["model"]["critic.layers.0.weight"],
    )


# ---------------------------------------------------------------------- the loss by hand


def linear(weights, prefix, x):
    return x @ weights[f"{prefix}.layers.0.weight"].T + weights[f"{prefix}.layers.0.bias"]


def policy(weights, observation, action):
    """Return log likelihoods, entropies and values of one agent, [N]."""
    value = linear(weights, "critic", observation)[:, 0]
    out = linear(weights, "policy", observation)
    if "head.log_std" not in weights:
        p = np.exp(out) / np.exp(out).sum(1, keepdims=True)
        chosen = p[np.arange(len(p)), action.astype(int)]
        return np.log(chosen), -(p * np.log(p)).sum(1), value
    std = np.exp(weights["head.log_std"])
    density = np.exp(-0.5 * ((action - out) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    entropy = np.log(np.prod(std * np.sqrt(2 * np.pi * np.e)))
    return np.log(density.prod(1)), np.full(len(out), entropy), value


def weights_of(agent, i, name):
    if name in agent.models():
        state = agent.models()[name].state_dict()
    else:
        state = agent.model.model.state_dict()
    return {key: value.double().numpy() for key, value in state.items()}


def reference(agent, samples, settings, common):
    """Return the loss, and the cost and mask of each agent."""
    clip, costs, masks = settings["ratio_clip"], [], []
    for i, name in enumerate(NAMES):

        def flat(tree, name=name):
            return array(tree, name).reshape(-1, *array(tree, name).shape[2:])

        stored = samples.agent
        observation = flat(stored.observation)
        if common:
            ids = np.tile(np.eye(len(NAMES))[i], (len(observation), 1))
            observation = np.concatenate([observation, ids], axis=1)
        log_prob, entropy, value = policy(
            weights_of(agent, i, name), observation, flat(stored.action)
        )
        ratio = np.exp(log_prob - flat(stored.agent_info.log_prob))
        advantage, return_ = flat(stored.advantage), flat(stored.return_)
        surrogate = np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage)
        costs.append(
            -surrogate
            + settings["value_loss_coeff"] * 0.5 * (value - return_) ** 2
            - settings["entropy_loss_coeff"] * entropy
        )
        masks.append(flat(samples.env.env_info.alive) > 0)
    if common:  # the mean over all steps that anybody took part in
        return np.concatenate([c[m] for c, m in zip(costs, masks, strict=True)]).mean(), masks
    return sum(c[m].mean() for c, m in zip(costs, masks, strict=True)), masks


@pytest.mark.parametrize("make", [independent, shared])
def test_what_an_agent_took_no_part_in_does_not_count(make):
    agent = make()
    factory = make_twins if make is shared else make_env
    with build(agent, factory, T=12) as sampler:
        samples, _ = sampler.collect_batch(0)
        perturb(agent)
        algorithm = multi_ppo(agent)
        loss, diagnostics = algorithm.loss(algorithm.construct_agent_inputs(samples))
        expected, masks = reference(agent, samples, SETTINGS, make is shared)
        assert loss.item() == pytest.approx(expected, rel=1e-4)
        counts = [mask.sum() for mask in masks]
        assert len(set(counts)) == 3
        pooled = np.average([diagnostics[f"entropy/{n}"].item() for n in NAMES], weights=counts)
        assert diagnostics["entropy"].item() == pytest.approx(pooled, rel=1e-5)
        # What stands where they took no part is not looked at.
        for mask, name in zip(masks, NAMES, strict=True):
            for field in (samples.agent.return_, samples.agent.advantage):
                np.asarray(getattr(field, name)).reshape(-1)[~mask] = 1e6
        again, _ = algorithm.loss(algorithm.construct_agent_inputs(samples))
        assert again.item() == loss.item()


def test_gradient_of_a_shared_model_is_the_slope_of_the_reference():
    agent = shared()
    with build(agent, make_twins, T=12) as sampler:
        samples, _ = sampler.collect_batch(0)
        perturb(agent)
        algorithm = multi_ppo(agent)
        algorithm.loss(algorithm.construct_agent_inputs(samples))[0].backward()
        for parameter in agent.model.parameters():
            weight, slopes = parameter.data.view(-1), []
            before = weight[0].item()
            for step in (1e-2, -1e-2):
                weight[0] = before + step
                slopes.append(reference(agent, samples, SETTINGS, common=True)[0])
            weight[0] = before
            slope = (slopes[0] - slopes[1]) / 2e-2
            assert parameter.grad.view(-1)[0].item() == pytest.approx(slope, rel=2e-2, abs=1e-4)


@pytest.mark.parametrize("make", [independent, shared])
def test_every_agent_learns_what_pays(make):
    agent = make((8,)) if make is independent else make()
    wanted = {"fox": 0, "dog": 2} if make is independent else {"fox": 0, "hen": 1, "dog": 2}
    factory = make_twins if make is shared else make_env
    with build(agent, lambda: factory(TOGETHER, TRUNCATED), T=16) as sampler:
        algorithm = multi_ppo(agent, learning_rate=0.03, epochs=4)
        for n in range(12):
            samples, _ = sampler.collect_batch(n)
            for name in NAMES:
                right = array(samples.agent.action, name)
                if name in wanted:
                    right = right == wanted[name]
                else:
                    right = -((right - 0.5) ** 2).sum(-1)
                np.asarray(getattr(samples.agent.advantage, name))[...] = right - right.mean()
                np.asarray(getattr(samples.agent.return_, name))[...] = 3
            diagnostics = algorithm.optimize_agent(64 * (n + 1), samples)
        samples, _ = sampler.collect_batch(99)
        for name, action in wanted.items():
            assert (array(samples.agent.action, name) == action).mean() > 0.8, name
        if make is independent:
            assert abs(array(samples.agent.action, "hen").mean() - 0.5) < 0.3
    assert diagnostics["value_loss"] < 0.2


def test_diagnostics_name_every_agent():
    agent = independent()
    with build(agent, make_env) as sampler:
        samples, _ = sampler.collect_batch(0)
        diagnostics = multi_ppo(agent).optimize_agent(32, samples)
    terms = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
    for term in (*terms, "explained_variance"):
        for name in ("", *(f"/{name}" for name in NAMES)):
            assert math.isfinite(diagnostics[f"{term}{name}"])
    assert diagnostics["epochs"] == 2
    mean = np.mean([diagnostics[f"explained_variance/{name}"] for name in NAMES])
    assert diagnostics["explained_variance"] == pytest.approx(mean)


def test_learning_rate_falls_with_steps_of_the_environment():
    agent = independent()
    with build(agent, make_env) as sampler:
        samples, _ = sampler.collect_batch(0)
        algorithm = multi_ppo(agent, learning_rate=0.4, learning_rate_anneal_steps=128)
        rates = [algorithm.optimize_agent(n, samples)["learning_rate"] for n in (32, 64, 128)]
    assert rates == pytest.approx([0.4, 0.3, 0.1])


@pytest.mark.parametrize("make", [independent, shared])
def test_a_resumed_run_continues_bit_for_bit(make):
    factory = make_twins if make is shared else make_env
    agent, other = make(), make()
    first, second = multi_ppo(agent), multi_ppo(other, seed=9)
    with build(agent, factory) as sampler:
        samples, _ = sampler.collect_batch(0)
        first.optimize_agent(32, samples)
        other.load_state(agent.state())
        second.load_state(first.state())
        assert second.optimize_agent(64, samples) == first.optimize_agent(64, samples)
    for mine, theirs in zip(agent.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_gradient_that_is_not_finite_names_the_agent():
    agent = independent()
    algorithm = multi_ppo(agent)
    weight = agent.agents["hen"].model.policy.layers[0].weight
    before = weight.detach().clone()
    loss = (weight - weight).sum().sqrt()
    for name in ("fox", "dog"):
        loss = loss + agent.agents[name].model.policy.layers[0].weight.sum()
    with pytest.raises(FloatingPointError, match=r"the gradient of \['hen'\] is not finite"):
        algorithm.update(loss)
    assert torch.equal(weight, before)


def test_samples_of_one_agent_are_refused():
    agent = independent()
    with build(agent, make_env) as sampler:
        samples, _ = sampler.collect_batch(0)
        single = samples.agent._replace(advantage=samples.agent.advantage.fox)
        with pytest.raises(ValueError, match=r"MultiAgentPPO: agent\.advantage: no field 'fox'"):
            multi_ppo(agent).optimize_agent(32, samples._replace(agent=single))


def test_each_ppo_names_the_other_where_that_is_meant():
    with pytest.raises(
        TypeError, match=r"PPO: agent: .*, got IndependentAgents. Use MultiAgentPPO"
    ):
        ppo(independent())
    with pytest.raises(TypeError, match=r"agent: expected .*, got CategoricalPgAgent. Use PPO"):
        multi_ppo(single_agents()["fox"])


def test_arguments_are_those_of_ppo():
    with pytest.raises(ValueError, match="PPO: epochs: expected a number above 0, got 0"):
        multi_ppo(independent(), epochs=0)
    with pytest.raises(TypeError, match="missing 11 required keyword-only arguments"):
        MultiAgentPPO(independent())
