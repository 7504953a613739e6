from __future__ import annotations

import numpy as np
import pytest
import torch
from ppo_setup import categorical, gaussian, parameters, perturb, ppo

from parllel.torch import (
    CategoricalRecurrentPgModel,
    CpuSamplingHandler,
    RecurrentPgAgent,
    TorchHandler,
)
from parllel.torch.distributions import Categorical


def copied(agent, samples, refill):
    """Fill the samples through a copy; return what was sampled."""
    handler = CpuSamplingHandler(agent)
    handler.bind(samples)
    refill(handler, samples, 1)
    return handler, sampled(samples)


def sampled(samples):
    info = samples.agent.agent_info
    return {
        name: np.array(field)
        for name, field in [
            ("action", samples.agent.action),
            ("value", info.value),
            ("log_prob", info.log_prob),
        ]
    }


@pytest.mark.parametrize("make", [categorical, gaussian])
def test_samples_are_those_of_the_agent_itself(make, make_batch, refill):
    results = []
    for handler_class in (TorchHandler, CpuSamplingHandler):
        agent = make(torch.float32)
        samples, _ = make_batch(make(torch.float32))
        handler = handler_class(agent)
        handler.bind(samples)
        for seed in (1, 2):
            refill(handler, samples, seed)
            perturb(agent)  # as an update would; the next batch is sampled with it
        refill(handler, samples, 3)
        results.append((sampled(samples), agent.state()))
    for name, array in results[0][0].items():
        np.testing.assert_array_equal(array, results[1][0][name], err_msg=name)
    np.testing.assert_array_equal(results[0][1]["generator"], results[1][1]["generator"])


def test_the_copy_changes_between_batches_only(make_batch, refill):
    agent = categorical(torch.float32)
    samples, _ = make_batch(categorical(torch.float32))
    handler, first = copied(agent, samples, refill)
    before = parameters(handler.agent)
    perturb(agent)
    for name, array in before.items():
        np.testing.assert_array_equal(parameters(handler.agent)[name], array)
    handler.step(0, slice(0, 6))
    np.testing.assert_array_equal(sampled(samples)["value"][0], first["value"][0])
    handler.start_batch()
    for name, array in parameters(agent).items():
        np.testing.assert_array_equal(parameters(handler.agent)[name], array)
    assert (parameters(agent)["policy.layers.0.weight"] != before["policy.layers.0.weight"]).all()


def test_an_evaluation_sees_the_latest_parameters():
    agent = gaussian(torch.float32)
    handler = CpuSamplingHandler(agent)
    perturb(agent)
    observation = np.ones((3, 4), np.float32)
    handler.eval_mode()
    expected = agent.model(torch.from_numpy(observation)).params.mean
    np.testing.assert_array_equal(handler.act(observation, slice(0, 3)), expected.detach())


def test_an_update_does_not_touch_the_copy(make_batch, refill):
    agent = categorical(torch.float32)
    samples, _ = make_batch(agent)
    handler, _ = copied(agent, samples, refill)
    before = parameters(handler.agent)
    ppo(agent).optimize_agent(48, samples)
    for name, array in before.items():
        np.testing.assert_array_equal(parameters(handler.agent)[name], array)
        assert (parameters(agent)[name] != array).any()


def test_either_state_is_complete():
    model = CategoricalRecurrentPgModel((4,), 3, (), 5, cell="gru", seed=0)
    agent = RecurrentPgAgent(model, Categorical(3), seed=0)
    handler = CpuSamplingHandler(agent)
    handler.agent.step(torch.rand(2, 4), env_indices=slice(0, 2))
    mine, theirs = agent.state(), handler.state()
    assert any(leaf.any() for leaf in mine["memory"])
    for one, other in zip(mine["memory"], theirs["memory"], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(mine["generator"], theirs["generator"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_model_on_a_gpu_is_sampled_on_the_cpu(make_batch, refill):
    agent = categorical(torch.float32)
    trained = agent.twin_on("cuda")
    samples, _ = make_batch(categorical(torch.float32))
    handler, _ = copied(trained, samples, refill)
    assert next(handler.agent.model.parameters()).device.type == "cpu"
    ppo(trained).optimize_agent(48, samples)
    handler.start_batch()
    for name, array in parameters(trained).items():
        np.testing.assert_array_equal(parameters(handler.agent)[name], array)
