"""Steps of known agents do, bit for bit, what the agent does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ppo_setup import HEADS, N_INPUTS, Wrapped, agent_of
from torch import nn

from parllel.buffers.tree import buffer_leaves
from parllel.torch import PgAgent, TorchHandler


class Plain(PgAgent):
    """A subclass is stepped by calling it."""


def by_calls(agent):
    """Return an agent that shares everything with another, but that no handler knows."""
    twin = object.__new__(Plain)
    vars(twin).update(vars(agent))
    return twin


def rows_of(samples):
    agent = samples.agent
    fields = {"action": agent.action, **dict(buffer_leaves(agent.agent_info))}
    return {name: np.array(field) for name, field in fields.items()}


@pytest.fixture
def compare(make_batch):
    """Return a function that samples with an agent as it is and by calls, and compares."""

    def run(agent, change=lambda agent: None, batches=1, **options):
        generator, found = agent._generator.get_state(), []
        for one in (agent, by_calls(agent)):
            agent._generator.set_state(generator)
            samples, handler = make_batch(one, n_inputs=N_INPUTS, **options)
            for _ in range(batches):
                handler.start_batch()
                for t in range(8):
                    for columns in (slice(0, 2), slice(2, 6)):
                        handler.step(t, columns)
                found.append(rows_of(samples))
        half = len(found) // 2
        for mine, theirs in zip(found[:half], found[half:], strict=True):
            assert mine.keys() == theirs.keys()
            for name, array in mine.items():
                np.testing.assert_array_equal(array, theirs[name], err_msg=name)
        return handler

    return run


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("hidden", [(), (5,), (64, 64)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_are_those_of_calls(compare, head, hidden, dtype):
    compare(agent_of(head, hidden), dtype=dtype, batches=2)


@pytest.mark.parametrize("trunk", [(), (6,), (6, 5)])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_samples_of_other_layers_are_those_of_calls(compare, trunk, activation):
    compare(agent_of("gaussian", (7,), trunk=trunk, activation=activation))


def calls_of(module):
    calls = []
    module.register_forward_hook(lambda *args: calls.append(1))
    return calls


def test_a_hook_is_called_from_the_next_batch_on(make_batch):
    agent = agent_of("gaussian")
    _, handler = make_batch(agent, n_inputs=N_INPUTS)
    calls = calls_of(agent.model)
    handler.start_batch()
    for t in range(8):
        handler.step(t, slice(0, 6))
    assert len(calls) == 8


@pytest.mark.parametrize(
    "change",
    [
        lambda agent: setattr(
            agent.model.policy.layers[0], "weight", nn.Parameter(torch.zeros(8, N_INPUTS))
        ),
        lambda agent: setattr(
            agent.model.policy.layers[0].weight, "data", torch.zeros(8, N_INPUTS)
        ),
        lambda agent: setattr(agent, "model", Wrapped(agent.model)),
        lambda agent: agent.model.policy.layers.__setitem__(1, nn.Linear(8, 8)),
    ],
    ids=["parameter", "data", "model", "layer"],
)
def test_what_is_replaced_between_batches_is_used(make_batch, change):
    agent = agent_of("categorical")
    samples, handler = make_batch(agent, n_inputs=N_INPUTS)
    change(agent)
    state = agent._generator.get_state()
    handler.start_batch()
    handler.step(0, slice(0, 6))
    found = rows_of(samples)
    agent._generator.set_state(state)
    noise = agent.draw_noise(8, 6)[0]
    observation = torch.from_numpy(np.array(samples.agent.observation[0]))
    action, info = agent.step(observation, noise=noise)
    np.testing.assert_array_equal(found["action"][0], action)
    np.testing.assert_array_equal(found["value"][0], info.value)
    np.testing.assert_array_equal(found["log_prob"][0], info.log_prob)


def test_a_step_of_one_object_is_called(make_batch):
    agent = agent_of("categorical")
    _, handler = make_batch(agent, n_inputs=N_INPUTS)
    calls, own = [], agent.step
    agent.step = lambda *args, **options: calls.append(1) or own(*args, **options)
    handler.start_batch()
    handler.step(0, slice(0, 6))
    assert calls == [1]


class WithInputs(TorchHandler):
    seen = 0

    def agent_inputs(self, observation, rows, columns):
        self.seen += 1
        return super().agent_inputs(observation, rows, columns)


def test_a_handler_that_adds_inputs_is_asked(make_batch):
    agent = agent_of("categorical")
    samples, _ = make_batch(agent, n_inputs=N_INPUTS)
    handler = WithInputs(agent)
    handler.bind(samples)
    handler.start_batch()
    handler.step(0, slice(0, 6))
    assert handler.seen == 1


def test_without_noise_the_agent_acts(make_batch):
    agent = agent_of("gaussian")
    samples, handler = make_batch(agent, n_inputs=N_INPUTS)
    handler.eval_mode()
    handler.start_batch()
    handler.step(0, slice(0, 6))
    observation = torch.from_numpy(np.array(samples.agent.observation[0]))
    np.testing.assert_array_equal(np.array(samples.agent.action[0]), agent.step(observation)[0])
