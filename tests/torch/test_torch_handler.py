from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from torch import nn

from parllel.agents import Agent, NumpyHandler, RandomAgent, agent_examples
from parllel.agents.agent import ALL_ENVS
from parllel.buffers import (
    AgentSamples,
    EnvSamples,
    Field,
    NamedTuple,
    Samples,
    allocate,
    insert_field,
)
from parllel.errors import notes_of
from parllel.torch import (
    CategoricalHead,
    CategoricalPgAgent,
    GaussianHead,
    GaussianPgAgent,
    PgAgent,
    PgModel,
    TorchHandler,
)
from parllel.torch.distributions.categorical import Categorical
from parllel.torch.models.pg_model import PgOutput
from parllel.types import BatchSpec


def categorical():
    return CategoricalPgAgent(PgModel((4,), CategoricalHead(3), (16,), seed=0), 3, seed=0)


def gaussian():
    model = PgModel((4,), GaussianHead((2,), initial_log_std=0.0), (16,), seed=0)
    return GaussianPgAgent(model, (2,), seed=0)


@pytest.mark.parametrize("make", [categorical, gaussian])
def test_rows_hold_what_the_agent_says_of_them(make, make_batch):
    agent = make()
    samples, handler = make_batch(agent)
    observation = torch.from_numpy(np.array(samples.agent.observation))
    action = torch.from_numpy(np.array(samples.agent.action))
    for t in range(8):
        log_prob, _, value = agent.evaluate(observation[t], action[t])
        info = samples.agent.agent_info
        np.testing.assert_allclose(np.asarray(info.value)[t], value.detach(), atol=1e-6)
        np.testing.assert_allclose(np.asarray(info.log_prob)[t], log_prob.detach(), atol=1e-6)
    value = samples.agent.agent_info.value
    last = np.array(samples.agent.observation[samples.agent.observation.last + 1])
    np.testing.assert_allclose(
        value[value.last + 1], agent.value(torch.from_numpy(last)), atol=1e-6
    )
    final = last[:2] + 1
    handler.final_value(np.array([1, 2]), np.array([0, 3]), final)
    final_value = np.asarray(samples.agent.final_value)
    expected = agent.value(torch.from_numpy(final)).numpy()
    np.testing.assert_allclose(final_value[[1, 2], [0, 3]], expected, atol=1e-6)
    assert np.count_nonzero(final_value) == 2


@pytest.mark.parametrize("make", [categorical, gaussian])
@pytest.mark.parametrize("groups", [[slice(0, 3), slice(3, 6)], [slice(5, 6), slice(0, 5)]])
def test_groups_of_columns_do_not_change_the_samples(make, groups, make_batch):
    whole, _ = make_batch(make())
    samples, handler = make_batch(make(), seed=1)
    for t in range(9):
        samples.agent.observation[t] = np.asarray(whole.agent.observation[t])
    handler.agent.load_state(make().state())
    handler.start_batch()
    for t in range(8):
        for group in groups:
            handler.step(t, group)
    np.testing.assert_allclose(samples.agent.action, whole.agent.action, atol=1e-5)
    np.testing.assert_allclose(
        samples.agent.agent_info.log_prob, whole.agent.agent_info.log_prob, atol=1e-5
    )


@pytest.mark.parametrize(
    ("make", "action"), [(categorical, np.int64(0)), (gaussian, np.zeros(2, np.float32))]
)
def test_example_has_the_shape_and_dtype_of_a_cell(make, action):
    handler = TorchHandler(make())
    before = handler.state()["generator"]
    example, info = agent_examples(handler, np.zeros(4, np.float32))
    assert np.shape(example) == action.shape
    assert example.dtype == action.dtype
    assert info._fields == ("value", "log_prob")
    assert (info.value.padding, info.log_prob.padding) == (1, 0)
    assert info.value.stored_dtype == info.log_prob.stored_dtype == np.float32
    np.testing.assert_array_equal(handler.state()["generator"], before)


def test_views_share_memory_with_the_samples(make_batch):
    samples, handler = make_batch(categorical())
    view = handler.row_view("agent.observation", 3, slice(1, 4))
    assert isinstance(view, torch.Tensor)
    samples.env.observation[3] = np.float32(12)
    assert view.eq(12).all()
    assert handler.row_view("agent.observation", 3, slice(1, 4)) is view


def test_acting_outside_of_a_batch_takes_read_only_arrays():
    handler = TorchHandler(categorical())
    handler.eval_mode()
    observation = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    observation.flags.writeable = False
    action = handler.act(observation, np.arange(5))
    with torch.no_grad():
        logits = handler.agent.model(torch.from_numpy(observation.copy())).params
    np.testing.assert_array_equal(action, logits.numpy().argmax(-1))


class DictModel(nn.Module):
    """Reads observations of a dict space by attribute."""

    def forward(self, observation):
        x = observation.camera.float().sum((1, 2)) + observation.speed
        return torch.stack([x, -x], -1), x


def test_trees_of_observations_reach_the_model():
    example = {"camera": np.zeros((2, 2), np.uint8), "speed": np.float32(0)}
    handler = TorchHandler(CategoricalPgAgent(DictModel(), 2, seed=0))
    action, info = agent_examples(handler, example)
    zero = np.float32(0)
    samples = allocate(
        Samples(
            agent=AgentSamples(
                action=Field(action, dtype=np.int64), agent_info=info, final_value=zero
            ),
            env=EnvSamples(
                observation=NamedTuple(**example),
                reward=zero,
                terminated=False,
                truncated=False,
                done=False,
                env_info=None,
            ),
        ),
        BatchSpec(3, 2),
        padding=1,
    )
    samples = insert_field(samples, "agent.observation", samples.env.observation)
    samples.env.observation.camera[1] = 2
    samples.env.observation.speed[1] = [0.5, -20]
    handler.bind(samples)
    handler.eval_mode()
    handler.start_batch()
    handler.step(1, slice(0, 2))
    assert np.asarray(samples.agent.agent_info.value)[1].tolist() == [8.5, -12]
    assert np.asarray(samples.agent.action)[1].tolist() == [0, 1]
    final = {"camera": np.ones((1, 2, 2), np.uint8), "speed": np.zeros(1, np.float32)}
    handler.final_value(np.array([0]), np.array([1]), final)
    assert np.asarray(samples.agent.final_value)[0].tolist() == [0, 4]


@pytest.mark.parametrize(
    ("example", "seen"),
    [
        (np.zeros(5, np.float32), r"observation float32 \(5,\)"),
        ({"arm": np.zeros(4), "leg": np.uint8(1)}, r"observation.arm float64 .*leg uint8 \(\)"),
    ],
)
def test_an_error_of_the_agent_says_what_it_was_shown(example, seen):
    handler = TorchHandler(categorical())
    with pytest.raises((RuntimeError, AttributeError), match=r"shapes|dim") as caught:
        agent_examples(handler, example)
    (note,) = notes_of(caught.value)
    assert re.search(
        f"in CategoricalPgAgent, given an example of one cell by TorchHandler: {seen}", note
    )


class Still(Agent):
    """An agent in numpy that has no more than an agent needs."""

    def step(self, observation, *, env_indices=ALL_ENVS, noise=None):
        return np.zeros(len(observation), np.int64), None


@pytest.mark.parametrize("make", [Still, partial(RandomAgent, Discrete(2), seed=0)])
def test_an_agent_that_answers_in_numpy_is_told_its_handler(make):
    handler = TorchHandler(make())
    name = type(handler.agent).__name__
    said = (
        rf"^TorchHandler: expected tensors from the agent \({name}\), got a numpy\.ndarray\. "
        r"Use NumpyHandler for agents that compute in NumPy or JAX$"
    )
    with pytest.raises(TypeError, match=said):
        agent_examples(handler, np.zeros(4, np.float32))


@pytest.mark.parametrize("make", [categorical, gaussian])
def test_a_numpy_handler_refuses_an_agent_with_modules_of_torch(make):
    said = r"^NumpyHandler: agent: \w+PgAgent has a PyTorch model; use TorchHandler$"
    with pytest.raises(TypeError, match=said):
        NumpyHandler(make())


class Heads(nn.Module):
    """A model whose outputs are computed from its two layers by a function."""

    def __init__(self, outputs):
        super().__init__()
        self.policy, self.critic, self.outputs = nn.Linear(4, 3), nn.Linear(4, 1), outputs

    def forward(self, observation):
        return self.outputs(self.policy(observation), self.critic(observation))


@pytest.mark.parametrize(
    ("outputs", "kind", "said"),
    [
        (
            lambda logits, value: PgOutput(logits, value),
            ValueError,
            r"^Heads: agent_info\.value: expected shape \[N\], got \[N, 1\]; squeeze the last dimension",
        ),
        (
            lambda logits, value: PgOutput(logits, value.mean()),
            ValueError,
            r"^Heads: agent_info\.value: expected shape \[N, \.\.\.\], .* N=1 .* got \(\)$",
        ),
        (
            lambda logits, value: logits,
            TypeError,
            r"^Heads: expected PgOutput\(params, value\), got a Tensor of shape \(1, 3\)",
        ),
        (
            lambda logits, value: {"logits": logits, "value": value, "more": 0},
            TypeError,
            r"^Heads: expected PgOutput\(params, value\), got a dict",
        ),
    ],
)
def test_a_model_that_returns_something_else_is_named(outputs, kind, said):
    handler = TorchHandler(PgAgent(Heads(outputs), Categorical(3), seed=0))
    with pytest.raises(kind, match=said):
        agent_examples(handler, np.zeros(4, np.float32))


def test_values_of_several_numbers_are_examples_too():
    agent = PgAgent(Heads(lambda logits, value: PgOutput(logits, logits)), Categorical(3), seed=0)
    _, info = agent_examples(TorchHandler(agent), np.zeros(4, np.float32))
    assert info.value.example.shape == (3,)


def test_an_action_without_a_dimension_for_environments_is_refused():
    class Flat(Still):
        def step(self, observation, *, env_indices=ALL_ENVS, noise=None):
            return np.zeros(3), None

    with pytest.raises(
        ValueError, match=r"^Flat: action: expected shape \[N, \.\.\.\], .* got \(3,\)$"
    ):
        agent_examples(NumpyHandler(Flat()), np.zeros(4, np.float32))
