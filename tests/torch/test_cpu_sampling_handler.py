from __future__ import annotations

import numpy as np
import pytest
import torch
from ppo_setup import categorical, gaussian, parameters, perturb, ppo

from parllel.torch import (
    CategoricalHead,
    CpuSamplingHandler,
    IndependentAgents,
    RecurrentPgAgent,
    RecurrentPgModel,
    TorchHandler,
)
from parllel.torch.distributions.categorical import Categorical


def copied(agent, samples, refill):
    """Fill the samples through a copy; return what was sampled."""
    handler = CpuSamplingHandler(agent)
    handler.bind(samples)
    refill(handler, samples, 1)
    return handler, sampled(samples)


def own(agent):
    """Return the parameters that an agent computes with."""
    return {name: tensor.numpy().copy() for name, tensor in agent.model.state_dict().items()}


def recurrent():
    model = RecurrentPgModel((4,), CategoricalHead(3), (), 5, cell="gru", seed=0)
    return RecurrentPgAgent(model, Categorical(3), seed=0)


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
    before = own(handler.agent)
    perturb(agent)
    for name, array in before.items():
        np.testing.assert_array_equal(own(handler.agent)[name], array)
    handler.step(0, slice(0, 6))
    np.testing.assert_array_equal(sampled(samples)["value"][0], first["value"][0])
    handler.start_batch()
    for name, array in parameters(agent).items():
        np.testing.assert_array_equal(own(handler.agent)[name], array)
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
    before = own(handler.agent)
    ppo(agent).optimize_agent(48, samples)
    for name, array in before.items():
        np.testing.assert_array_equal(own(handler.agent)[name], array)
        assert (parameters(agent)[name] != array).any()


def test_what_the_copy_remembers_is_in_the_state_of_the_agent():
    agent = recurrent()
    handler = CpuSamplingHandler(agent)
    handler.agent.step(torch.rand(2, 4), env_indices=slice(0, 2))
    mine, theirs = agent.state(), handler.agent.state()
    assert any(leaf.any() for leaf in mine["memory"])
    for one, other in zip(mine["memory"], theirs["memory"], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(mine["generator"], theirs["generator"])


def test_either_state_has_the_parameters_of_the_agent_that_is_trained(make_batch, refill):
    agent, other = categorical(torch.float32), categorical(torch.float32)
    samples, _ = make_batch(agent)
    handler, _ = copied(agent, samples, refill)
    perturb(agent)  # the copy does not know of it yet
    state = handler.state()
    for name, array in own(agent).items():
        np.testing.assert_array_equal(state["model"][name], array)

    resumed = CpuSamplingHandler(other)
    resumed.load_state(state)
    resumed.bind(samples)
    for _ in range(2):  # before and after the copy has taken over the parameters
        for name, array in parameters(agent).items():
            np.testing.assert_array_equal(parameters(other)[name], array)
            np.testing.assert_array_equal(own(resumed.agent)[name], array)
        resumed.start_batch()


def test_what_is_remembered_moves_with_the_twin_that_samples():
    agent = recurrent()
    agent.step(torch.rand(2, 4), env_indices=slice(0, 2))
    twin = agent.copy_to_device("meta")  # memory without numbers stands in for that of a GPU
    assert twin.initial_rnn_state(slice(0, 2)).hidden.device.type == "meta"


def test_what_a_checkpoint_remembers_is_where_the_copy_computes():
    saved, agent = recurrent(), recurrent()
    saved.step(torch.rand(2, 4), env_indices=slice(0, 2))
    observation = torch.rand(2, 4)
    handler = CpuSamplingHandler(agent)
    agent.device = torch.device("meta")
    agent.model.to("meta")
    agent.load_state(saved.state())  # as a runner does
    found, _ = handler.agent.step(observation, env_indices=slice(0, 2))
    expected, _ = saved.step(observation, env_indices=slice(0, 2))
    assert torch.equal(found, expected)
    states = [one.initial_rnn_state(slice(0, 2)).hidden for one in (handler.agent, saved)]
    assert torch.equal(*states)


def test_other_agents_are_refused():
    with pytest.raises(
        TypeError, match=r"agent: expected a PgAgent or QAgent of .*IndependentAgents"
    ):
        CpuSamplingHandler(IndependentAgents({"fox": categorical()}))


def test_weights_that_come_from_another_process_last(make_batch, refill):
    agent, trained = categorical(torch.float32), categorical(torch.float32)
    samples, _ = make_batch(agent)
    handler, _ = copied(agent, samples, refill)
    perturb(trained)
    # As an AsynchronousSampler's process does before each batch.
    handler.agent.load_state({**handler.agent.state(), "model": trained.state()["model"]})
    handler.start_batch()
    for name, array in parameters(trained).items():
        np.testing.assert_array_equal(own(handler.agent)[name], array)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_model_on_a_gpu_is_sampled_on_the_cpu(make_batch, refill):
    agent = categorical(torch.float32)
    trained = agent.copy_to_device("cuda")
    samples, _ = make_batch(categorical(torch.float32))
    handler, _ = copied(trained, samples, refill)
    assert next(handler.agent.model.parameters()).device.type == "cpu"
    ppo(trained).optimize_agent(48, samples)
    handler.start_batch()
    for name, array in parameters(trained).items():
        np.testing.assert_array_equal(own(handler.agent)[name], array)
