"""The loss of PPO against a reference in plain numpy, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ppo_setup import SETTINGS, categorical, gaussian, parameters, perturb, ppo

from parllel.buffers import Field, add_fields
from parllel.types import BatchSpec


@pytest.fixture(params=[categorical, gaussian])
def make(request):
    return request.param


def reference_mlp(weights, prefix, x):
    n = sum(name.startswith(prefix) and name.endswith("weight") for name in weights)
    for i in range(n):
        x = x @ weights[f"{prefix}.layers.{i}.weight"].T + weights[f"{prefix}.layers.{i}.bias"]
        x = np.tanh(x) if i < n - 1 else x
    return x


def reference_policy(weights, observation, action):
    """Return log likelihood and entropy per step."""
    out = reference_mlp(weights, "policy", observation)
    if "head.log_std" not in weights:
        p = np.exp(out) / np.exp(out).sum(1, keepdims=True)
        return np.log(p[np.arange(len(p)), action]), -(p * np.log(p)).sum(1)
    std = np.exp(weights["head.log_std"])
    density = np.exp(-0.5 * ((action - out) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    # The likelihood of an action is the product over its dimensions.
    entropy = np.log(np.prod(std * np.sqrt(2 * np.pi * np.e)))
    return np.log(density.prod(1)), np.full(len(out), entropy)


def reference_loss(weights, samples, settings, valid=None, weight=1.0):
    def flat(array):
        array = np.array(array)
        array = array.reshape(-1, *array.shape[2:])
        return array if valid is None else array[valid]

    agent = samples.agent
    observation, action = flat(agent.observation), flat(agent.action)
    log_prob, entropy = reference_policy(weights, observation, action)
    value = reference_mlp(weights, "critic", observation)[:, 0]
    old_log_prob, old_value = flat(agent.agent_info.log_prob), flat(agent.agent_info.value)
    advantage, return_ = flat(agent.advantage), flat(agent.return_)
    ratio = np.exp(log_prob) / np.exp(old_log_prob)
    clip = settings["ratio_clip"]
    surrogate = np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage)
    surrogate = surrogate * weight
    error = (value - return_) ** 2
    if settings["value_clip"] is not None:
        limit = settings["value_clip"]
        near = old_value + np.clip(value - old_value, -limit, limit)
        error = np.maximum(error, (near - return_) ** 2)
    means = {
        "policy_loss": -surrogate.mean(),
        "value_loss": 0.5 * error.mean(),
        "entropy": entropy.mean(),
        "approx_kl": (ratio - 1 - np.log(ratio)).mean(),
        "clip_fraction": (abs(ratio - 1) > clip).mean(),
    }
    loss = means["policy_loss"] + settings["value_loss_coeff"] * means["value_loss"]
    return loss - settings["entropy_loss_coeff"] * means["entropy"], means


@pytest.mark.parametrize("value_clip", [None, 0.1])
@pytest.mark.parametrize("masked", [False, True])
def test_loss_and_diagnostics_are_those_of_the_reference(make, make_batch, value_clip, masked):
    agent = make()
    samples, _ = make_batch(agent, dtype=np.float64, valid=masked)
    valid = None
    if masked:
        valid = np.random.default_rng(4).random(48) < 0.6
        np.asarray(samples.env.valid)[:] = valid.reshape(8, 6)
    perturb(agent)
    algorithm = ppo(agent, value_clip=value_clip)
    loss, diagnostics = algorithm.loss(algorithm.construct_agent_inputs(samples))
    settings = {**SETTINGS, "value_clip": value_clip}
    expected, means = reference_loss(parameters(agent), samples, settings, valid)
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert {name: value.item() for name, value in diagnostics.items()} == pytest.approx(
        means, abs=1e-6
    )
    assert 0 < means["clip_fraction"] < 1


def test_weights_multiply_the_objective_around_the_learners_policy(make, make_batch):
    agent = make()
    samples, _ = make_batch(agent, dtype=np.float64)
    perturb(agent)
    rng = np.random.default_rng(5)
    names = ("importance_weight", "learner_log_prob", "learner_value")
    info = samples.agent.agent_info
    fields = {f"agent.{name}": Field(np.float64(0), dtype=np.float64) for name in names}
    weighted = add_fields(samples, fields, BatchSpec(8, 6))
    weight = rng.uniform(0, 1, (8, 6))
    np.asarray(weighted.agent.importance_weight)[...] = weight
    for name in ("log_prob", "value"):
        # What the learner said differs from what the policy did that sampled.
        said = np.asarray(info._get(name)) + rng.normal(0, 0.1, (8, 6))
        np.asarray(weighted.agent._get(f"learner_{name}"))[...] = said
    algorithm = ppo(agent, value_clip=0.1)
    loss, diagnostics = algorithm.loss(algorithm.construct_agent_inputs(weighted))
    # The reference reads what sampled, so it is given the learner's in its place.
    for name in ("log_prob", "value"):
        np.asarray(info._get(name))[...] = np.asarray(weighted.agent._get(f"learner_{name}"))
    settings = {**SETTINGS, "value_clip": 0.1}
    expected, means = reference_loss(
        parameters(agent), samples, settings, weight=weight.reshape(-1)
    )
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert {name: value.item() for name, value in diagnostics.items()} == pytest.approx(
        means, abs=1e-6
    )


def test_gradient_is_the_slope_of_the_reference(make, make_batch):
    agent = make()
    samples, _ = make_batch(agent, dtype=np.float64)
    perturb(agent)
    algorithm = ppo(agent, value_clip=0.1)
    algorithm.loss(algorithm.construct_agent_inputs(samples))[0].backward()
    settings = {**SETTINGS, "value_clip": 0.1}
    for name, parameter in agent.model.named_parameters():
        slopes = []
        for step in (1e-6, -1e-6):
            weights = parameters(agent)
            weights[name].reshape(-1)[0] += step
            slopes.append(reference_loss(weights, samples, settings)[0])
        slope = (slopes[0] - slopes[1]) / 2e-6
        assert parameter.grad.reshape(-1)[0].item() == pytest.approx(slope, abs=1e-6), name


def test_value_clip_by_hand(make_batch):
    agent = categorical()
    samples, _ = make_batch(agent, T=1, B=4, dtype=np.float64)
    inputs = ppo(agent, value_clip=0.5).construct_agent_inputs(samples)
    old = torch.zeros(4, dtype=torch.float64)
    inputs.value.copy_(old)
    inputs.return_.copy_(torch.tensor([2.0, 2.0, -2.0, 0.25]))
    value = torch.tensor([0.25, 1.5, 1.5, 0.75], dtype=torch.float64)
    inside, towards, away, beyond = (2 - 0.25) ** 2, (2 - 0.5) ** 2, (-2 - 1.5) ** 2, 0.25
    algorithm = ppo(agent, value_clip=0.5, entropy_loss_coeff=0.0)
    agent.evaluate = lambda observation, action: (inputs.log_prob, old, value)
    _, diagnostics = algorithm.loss(inputs)
    expected = 0.5 * (inside + towards + away + beyond) / 4
    assert diagnostics["value_loss"].item() == pytest.approx(expected)
