from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from parllel import Seeds
from parllel.errors import UnusableDeviceError
from parllel.torch import (
    Categorical,
    CategoricalHead,
    CategoricalPgAgent,
    GaussianHead,
    GaussianPgAgent,
    MultiDiscrete,
    PgAgent,
    PgModel,
)


def categorical(seed=0):
    model = PgModel((4,), CategoricalHead(3), (16,), seed=0)
    with torch.no_grad():
        model.policy.layers[-1].weight.mul_(100)  # so that the actions differ in likelihood
    return CategoricalPgAgent(model, 3, seed=seed)


def gaussian(seed=0):
    model = PgModel((4,), GaussianHead((2,), initial_log_std=-0.5), (16,), seed=0)
    return GaussianPgAgent(model, (2,), seed=seed)


def multi_discrete(seed=0):
    return PgAgent(
        PgModel((4,), CategoricalHead(5), (16,), seed=0), MultiDiscrete((2, 3)), seed=seed
    )


OBSERVATION = torch.randn(6, 4, generator=torch.Generator().manual_seed(5))


@pytest.fixture(params=[categorical, gaussian, multi_discrete])
def make(request):
    return request.param


def generator_bytes(agent):
    return agent.state()["generator"].tobytes()


# torch.compile imports deprecated parts of PyTorch.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_that_is_compiled_in_place_acts_alike_and_keeps_its_names():
    plain, compiled = categorical(), categorical()
    compiled.model.compile(backend="eager")
    (expected, info), (action, found) = plain.step(OBSERVATION), compiled.step(OBSERVATION)
    torch.testing.assert_close(action, expected)
    torch.testing.assert_close(found.value.clone(), info.value.clone())
    assert plain.state()["model"].keys() == compiled.state()["model"].keys()
    compiled.load_state(plain.state())
    torch.testing.assert_close(compiled.step(OBSERVATION)[0], plain.step(OBSERVATION)[0])


def test_step_returns_action_and_info_of_that_action(make):
    agent = make()
    action, info = agent.step(OBSERVATION)
    log_prob, entropy, value = agent.evaluate(OBSERVATION, action.clone())
    assert info._fields == ("value", "log_prob")
    torch.testing.assert_close(info.log_prob.clone(), log_prob.detach())
    torch.testing.assert_close(info.value.clone(), value.detach())
    torch.testing.assert_close(agent.value(OBSERVATION).clone(), value.detach())
    assert log_prob.requires_grad
    assert entropy.requires_grad
    assert value.requires_grad
    assert not action.requires_grad
    assert action.dtype == (torch.float32 if make is gaussian else torch.int64)


def test_same_noise_gives_same_actions_however_columns_are_grouped(make):
    agent = make()
    T, B = 50, 6
    noise = agent.draw_noise(T, B)
    observation = torch.randn(T, B, 4, generator=torch.Generator().manual_seed(1))

    def actions(groups):
        rows = [
            torch.cat(
                [agent.step(observation[t, group], noise=noise[t, group])[0] for group in groups]
            )
            for t in range(T)
        ]
        return torch.stack(rows)

    whole = actions([slice(0, 6)])
    for groups in ([slice(0, 3), slice(3, 6)], [slice(i, i + 1) for i in range(6)]):
        torch.testing.assert_close(actions(groups), whole, rtol=0, atol=1e-5)
    assert len(torch.unique(whole)) > 2


def test_eval_mode_acts_with_the_mode_and_rests_the_generator(make):
    agent = make()
    before = generator_bytes(agent)
    agent.eval_mode()
    first, _ = agent.step(OBSERVATION)
    second, _ = agent.step(OBSERVATION, noise=torch.full((6, 5), 100.0))
    assert agent.draw_noise(3, 6) is None
    assert torch.equal(first, second)
    with torch.no_grad():
        params, _ = agent.model(OBSERVATION)
    assert torch.equal(first.clone(), agent.distribution.mode(params))
    assert generator_bytes(agent) == before
    agent.sample_mode()
    agent.step(OBSERVATION)
    assert generator_bytes(agent) != before


def test_the_seed_alone_decides_on_the_noise(make):
    torch.manual_seed(0)
    first = make(seed=1).draw_noise(4, 6)
    torch.manual_seed(1)
    assert torch.equal(first, make(seed=1).draw_noise(4, 6))
    assert not torch.equal(first, make(seed=2).draw_noise(4, 6))


def test_state_round_trip(make):
    agent, other = make(seed=1), make(seed=2)
    with torch.no_grad():
        for parameter in agent.model.parameters():
            parameter.add_(0.1)
    agent.draw_noise(2, 6)
    state = agent.state()
    assert all(isinstance(array, np.ndarray) for array in state["model"].values())
    assert state["generator"].dtype == np.uint8
    kept = {name: array.copy() for name, array in state["model"].items()}
    places = [parameter.data_ptr() for parameter in other.model.parameters()]
    other.load_state(state)
    assert [parameter.data_ptr() for parameter in other.model.parameters()] == places
    for _ in range(2):
        mine, theirs = agent.step(OBSERVATION), other.step(OBSERVATION)
        assert torch.equal(mine[0], theirs[0])
        assert torch.equal(mine[1].value, theirs[1].value)
    with torch.no_grad():
        for parameter in agent.model.parameters():
            parameter.zero_()
    for name, array in kept.items():
        np.testing.assert_array_equal(state["model"][name], array)


def test_state_of_another_model_is_refused_whole():
    agent = categorical()
    small = CategoricalPgAgent(PgModel((4,), CategoricalHead(3), (8,), seed=1), 3, seed=0)
    before = small.model.policy.layers[0].weight.clone()
    with pytest.raises(
        ValueError, match=r"layers.0.weight: expected shape \(8, 4\), got \(16, 4\)"
    ):
        small.load_state(agent.state())
    assert torch.equal(small.model.policy.layers[0].weight, before)
    with pytest.raises(ValueError, match="PgModel: expected the parameters"):
        gaussian().load_state(agent.state())


def test_modes_switch_modules():
    agent = categorical()
    assert not agent.model.training
    agent.train_mode()
    assert agent.model.training
    agent.eval_mode()
    assert not agent.model.training
    agent.sample_mode()
    assert not agent.model.training
    assert agent.models() == {"model": agent.model}


class TeamModel(nn.Module):
    """Wants to know which agent it acts for; observations are a dict space."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(3, 4)
        self.policy = nn.Linear(4, 2)

    def forward(self, observation, agent_id):
        x = observation["position"] + self.embed(agent_id)
        return self.policy(x), x.sum(-1)


def test_further_inputs_reach_the_model():
    agent = CategoricalPgAgent(TeamModel(), 2, seed=0)
    observation = {"position": torch.zeros(3, 4)}
    agent_id = torch.tensor([2, 0, 0])
    action, info = agent.step(observation, agent_id=agent_id)
    assert info.value[1] == info.value[2] != info.value[0]
    value = agent.value(observation, agent_id=agent_id)
    assert torch.equal(value, info.value)
    log_prob, _, _ = agent.evaluate(observation, action.clone(), agent_id=agent_id)
    torch.testing.assert_close(log_prob.detach(), info.log_prob.clone())


class ColumnOfValues(nn.Module):
    def forward(self, observation):
        return observation[:, :2], observation[:, :1]


def test_values_of_a_wrong_shape_are_refused():
    agent = CategoricalPgAgent(ColumnOfValues(), 2, seed=0)
    expected = r"ColumnOfValues: expected values of shape \(6,\), got \(6, 1\); squeeze"
    with pytest.raises(ValueError, match=expected):
        agent.evaluate(OBSERVATION, torch.zeros(6, dtype=torch.int64))


def test_state_survives_json_and_plain_arrays(make):
    agent = make()
    state = agent.state()
    as_json = json.dumps({name: array.tolist() for name, array in state["model"].items()})
    model = {
        name: np.array(values, np.float32).reshape(state["model"][name].shape)
        for name, values in json.loads(as_json).items()
    }
    other = make(seed=3)
    other.load_state({"model": model, "generator": state["generator"]})
    assert torch.equal(agent.step(OBSERVATION)[0], other.step(OBSERVATION)[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_draws_the_same_noise_and_acts_alike(make, make_batch):
    on_cpu, on_gpu = make(), make()
    on_gpu = PgAgent(on_gpu.model, on_gpu.distribution, seed=0, device="cuda")
    expected, _ = make_batch(on_cpu)
    samples, _ = make_batch(on_gpu)
    np.testing.assert_allclose(samples.agent.action, expected.agent.action, atol=1e-4)


def test_what_is_not_on_the_device_is_moved_there(make, make_batch, monkeypatch):
    agent = make()
    expected, _ = make_batch(agent)
    # The CPU stands in for another device, so that the copies are made in any case.
    other = make()
    monkeypatch.setattr(other, "_on_cpu", False)
    moved = []
    monkeypatch.setattr(other, "_to_device", lambda value: moved.append(value) or value)
    samples, _ = make_batch(other)
    np.testing.assert_array_equal(samples.agent.action, expected.agent.action)
    noise = tuple(agent.draw_noise(1, 6)[0].shape)
    shapes = {tuple(value.shape) for value in moved}
    assert shapes == {
        (1, 4),
        (6, 4),
        noise,
    }  # the example, rows, and noise that may come from numpy


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": lambda observation: observation}, r"model: expected a Module, got <function"),
        ({"model": nn.Linear}, r"model: expected a Module, got <class .*Linear'>; call it$"),
        (
            {"distribution": Categorical},
            r"distribution: expected a Distribution, got <class .*; call it$",
        ),
        ({"distribution": 2}, r"distribution: expected a Distribution, got 2$"),
        (
            {"seed": Seeds(3)},
            r'seed: expected an int, got Seeds\(3\); give seeds.integer\("a name"\)$',
        ),
    ],
)
def test_parts_of_another_kind_are_refused(wrong, said):
    right = {"model": nn.Linear(2, 2), "distribution": Categorical(2), "seed": 0}
    with pytest.raises(TypeError, match="^PgAgent: " + said):
        PgAgent(**{**right, **wrong})


def test_the_reason_why_a_device_is_refused_is_short(monkeypatch):
    def fail(*args, **settings):
        raise NotImplementedError("Could not run 'aten::empty'. Available: " + "CPU, " * 200)

    monkeypatch.setattr(torch, "zeros", fail)
    with pytest.raises(
        UnusableDeviceError, match=r"got 'mps' \(Could not run .* \.\.\.\); give"
    ) as caught:
        PgAgent(nn.Linear(2, 2), Categorical(2), seed=0, device="mps")
    assert len(str(caught.value)) < 400
