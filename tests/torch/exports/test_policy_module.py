"""A PolicyModule takes the actions that the loaded policy takes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from export_runs import EXACT, RECURRENT, SPACES
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from parllel.policies import load_policy
from parllel.torch.exports.policy_module import PolicyModule

FEED_FORWARD = [kind for kind in EXACT if kind not in RECURRENT]


def observations_of(space, N, seed=0):
    """Sample N observations, in the format of vector environments."""
    many = batch_space(space, N)
    many.seed(seed)
    return many.sample()


def assert_same(actions, expected):
    assert actions.dtype == expected.dtype
    assert actions.shape == expected.shape
    if np.issubdtype(expected.dtype, np.floating):
        np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(actions, expected)


@pytest.mark.parametrize("kind", FEED_FORWARD)
def test_the_actions_are_the_policys(run_of, kind):
    with load_policy(run_of(kind)) as policy:
        module = PolicyModule(policy)
        observation = observations_of(policy.observation_space, 1000)
        expected = policy.act(observation, range(1000))
        actions = module(*module.tensors_of(observation))
    assert_same(actions.numpy(), expected)
    # Not the same action everywhere, which a wrong module could guess.
    assert len(np.unique(expected.reshape(1000, -1), axis=0)) > 1
    assert module.outputs == ("action",)


@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_actions_are_the_policys(run_of, kind):
    with load_policy(run_of(kind)) as policy:
        module = PolicyModule(policy)
        state, seen = module.initial_state(100), []
        for t in range(10):
            if t == 6:  # some begin a new episode
                policy.reset(range(30))
                for leaf, first in zip(state, module.initial_state(100), strict=True):
                    leaf[:30] = first[:30]
            observation = observations_of(policy.observation_space, 100, seed=t)
            expected = policy.act(observation, range(100))
            actions, *state = module(*module.tensors_of(observation), *state)
            assert_same(actions.numpy(), expected)
            seen.append(expected)
        forgetful = module(*module.tensors_of(observation), *module.initial_state(100))[0]
    assert (forgetful.numpy() != expected).any()  # the memory matters
    assert len(np.unique(np.concatenate(seen), axis=0)) > 2


def test_names_of_inputs_and_outputs(run_of):
    with load_policy(run_of("lstm")) as policy:
        module = PolicyModule(policy, params=True)
    state = ("rnn_state.hidden", "rnn_state.cell", "prev_action")
    assert module.inputs == ("observation", *state)
    assert module.outputs == ("action", "params", *(f"next_{name}" for name in state))
    with load_policy(run_of("parts")) as policy:
        module = PolicyModule(policy)
    assert set(module.inputs) == {f"observation.{name}" for name in SPACES["parts"][0]}
    with load_policy(run_of("gaussian_gru")) as policy:
        module = PolicyModule(policy, params=True)
    assert module.outputs[1:3] == ("params.mean", "params.log_std")
    _, mean, log_std, *_ = module(*module.example_inputs(3))
    assert mean.shape == log_std.shape == (3, 2)


def test_parameters_agree_with_actions(run_of):
    with load_policy(run_of("dqn")) as policy:
        module = PolicyModule(policy, params=True)
        observation = observations_of(policy.observation_space, 50)
        action, values = module(*module.tensors_of(observation))
        expected = policy.act(observation, range(50))
    assert module.outputs == ("action", "action_values")
    np.testing.assert_array_equal(values.argmax(-1).numpy(), expected)
    assert values.shape == (50, 4)
    with load_policy(run_of("sac")) as policy:
        module = PolicyModule(policy, params=True)
        action, mean, log_std = module(*module.tensors_of(observation))
    low, high = (
        torch.from_numpy(bound) for bound in (policy.action_space.low, policy.action_space.high)
    )
    torch.testing.assert_close(
        action, low + (mean.double().tanh() + 1) / 2 * (high - low), rtol=1e-5, atol=1e-6
    )
    assert (log_std >= -20).all()
    assert (log_std <= 2).all()


def test_the_policy_keeps_its_memory_and_its_weights(run_of):
    with load_policy(run_of("lstm")) as policy:
        observation = observations_of(policy.observation_space, 20)
        policy.act(observation, range(20))
        before = copy.deepcopy(policy.state())
        module = PolicyModule(policy)
        np.testing.assert_equal(policy.state(), before)
        policy.model.policy.weight.data.zero_()
        assert module.model.policy.weight.abs().sum() > 0


def test_the_model_of_a_policy(run_of):
    with load_policy(run_of("categorical")) as policy:
        observation = observations_of(policy.observation_space, 20).astype(np.float32)
        with torch.inference_mode():
            params, value = policy.model(torch.from_numpy(policy.as_seen(observation)))
        assert not policy.model.training
        np.testing.assert_array_equal(
            params.argmax(-1).numpy() + 2, policy.act(observation, range(20))
        )
        assert value.shape == (20,)


def test_what_cannot_be_a_module_is_named(run_of):
    with load_policy(run_of("td3")) as policy:
        with pytest.raises(ValueError, match="params: TD3Agent has a deterministic policy"):
            PolicyModule(policy, params=True)
        module = PolicyModule(policy)
        with pytest.raises(ValueError, match=r"expected 1 tensors \(observation\), got 2"):
            module(torch.zeros(1, 5), torch.zeros(1))
        policy.action_space = spaces.Dict({"a": spaces.Discrete(2)})
        with pytest.raises(TypeError, match=r"action space: expected one of Box, .* got Dict"):
            PolicyModule(policy)


def test_agents_and_transforms_that_a_module_cannot_compute_are_named(run_of):
    with load_policy(run_of("categorical")) as policy:
        agent = policy.handler.agent
        policy.handler.agent = object()
        with pytest.raises(
            TypeError, match=r"expected one agent of parllel.torch, .*, got a .*object"
        ):
            PolicyModule(policy)
        policy.handler.agent = agent
        with pytest.raises(TypeError, match=r"PolicyModule: .* of load_policy, got a .*PgAgent"):
            PolicyModule(agent)

        class Doubled(type(policy.as_seen.transforms[0])):
            pass

        policy.as_seen.transforms[0].__class__ = Doubled
        with pytest.raises(TypeError, match="Doubled: NormalizeObservations is the only step"):
            PolicyModule(policy)

        class Told(type(policy.handler)):
            def agent_inputs(self, observation, rows, columns):
                return {"observation": observation}

        policy.handler.__class__ = Told
        with pytest.raises(TypeError, match="Told gives the agent inputs besides"):
            PolicyModule(policy)


def test_observations_of_other_shapes_are_refused(run_of):
    with load_policy(run_of(EXACT[0])) as policy:
        module = PolicyModule(policy)
        shape = policy.observation_space.shape
        assert len(shape) == 1
        each = rf"observation: expected shape \[N, {shape[0]}\], .* got "
        one = policy.observation_space.sample()
        # One observation, without the dimension N.
        with pytest.raises(ValueError, match=each + rf"\[{shape[0]}\]"):
            module.tensors_of(one)
        with pytest.raises(ValueError, match=each + rf"\[2, {shape[0] + 1}\]"):
            module.tensors_of(np.zeros((2, shape[0] + 1), np.float32))
        with pytest.raises(ValueError, match=each + r"\[\]"):
            module.tensors_of(np.float32(1))


def test_parts_of_unequal_length_are_refused(run_of):
    kind = next(kind for kind in EXACT if isinstance(SPACES[kind][0], spaces.Dict))
    with load_policy(run_of(kind)) as policy:
        module = PolicyModule(policy)
        observation = observations_of(policy.observation_space, 3)
        name = list(observation)[-1]
        observation[name] = observation[name][:2]
        with pytest.raises(ValueError, match=rf"observation\.{name}: .* got \[2"):
            module.tensors_of(observation)
