from __future__ import annotations

import json
from functools import partial

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_setup import DISTRIBUTIONS, N_INPUTS, agent_of, assert_equal, batch_of, parameters, ppo
from scipy import stats

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.buffers import NamedTuple
from parllel.cages import Spaces
from parllel.errors import UnusableDeviceError
from parllel.jax import (
    Categorical,
    Gaussian,
    GaussianParams,
    Model,
    PgAgent,
    PgModel,
    PgOutput,
    agent_for,
)
from parllel_patterns import build_cages, build_sampler

OBSERVATION = np.random.default_rng(5).normal(size=(6, N_INPUTS)).astype(np.float32)


@pytest.fixture(params=list(DISTRIBUTIONS))
def head(request):
    return request.param


def forward(weights, observation, *, n_shared=0, activation=np.tanh):
    """Return outputs of the policy and values, by numpy in float64."""

    def network(name, x, linear_last):
        n = sum(key.startswith(f"{name}.") and key.endswith("weight") for key in weights)
        for i in range(n):
            layer = f"{name}.layers.{i}"
            x = x @ weights[f"{layer}.weight"].astype(np.float64).T + weights[f"{layer}.bias"]
            x = x if linear_last and i == n - 1 else activation(x)
        return x

    x = network("encoder", observation.astype(np.float64), linear_last=False)
    return network("policy", x, linear_last=True), network("critic", x, linear_last=True)[:, 0]


def test_a_step_is_the_model_in_numpy(head):
    for activation, function in (("tanh", np.tanh), ("relu", lambda x: np.maximum(x, 0))):
        agent = agent_of(head, shared_sizes=(5,), activation=activation)
        weights = parameters(agent)
        noise = agent.draw_noise(1, 6)[0]
        action, info = agent.step(OBSERVATION, noise=noise)
        outputs, value = forward(weights, OBSERVATION, activation=function)
        np.testing.assert_allclose(info.value, value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(agent.value(OBSERVATION), value, rtol=1e-5, atol=1e-6)
        if head == "categorical":
            expected = outputs.argmax(-1) * 0 + (outputs + noise).argmax(-1) + 2
            probabilities = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
            log_prob = np.log(probabilities[np.arange(6), expected - 2])
            assert action.dtype == np.int32
        else:
            std = np.exp(weights["head.log_std"].astype(np.float64))
            expected = outputs + std * noise
            log_prob = stats.norm.logpdf(expected, outputs, std).sum(-1)
        np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(info.log_prob, log_prob, rtol=1e-5, atol=1e-5)


def test_log_probabilities_and_entropies_are_those_of_scipy():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(5, 4)).astype(np.float32)
    logits[1, 2] = -np.inf
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(-1, keepdims=True)
    one = Categorical(4, start=-1)
    np.testing.assert_allclose(one.entropy(jnp.array(logits)), stats.entropy(p, axis=-1), rtol=1e-5)
    for action in range(-1, 3):
        found = one.log_prob(jnp.array(logits), jnp.full(5, action))
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(found, np.log(p[:, action + 1]), rtol=1e-5)
    # The masked logit has no gradient, in place of NaN.
    gradient = jax.grad(lambda x: one.entropy(x).sum() + one.log_prob(x, jnp.zeros(5)).sum())
    assert np.isfinite(gradient(jnp.array(logits))).all()
    for shape in ((2, 3), ()):
        normal = Gaussian(shape)
        mean, log_std = rng.normal(size=(5, *shape)), rng.normal(size=shape)
        action = rng.normal(size=(5, *shape))
        params = GaussianParams(jnp.array(mean, jnp.float32), jnp.array(log_std, jnp.float32))
        axes = tuple(range(1, 1 + len(shape)))
        log_pdf = stats.norm.logpdf(action, mean, np.exp(log_std)).sum(axes)
        found = normal.log_prob(params, jnp.array(action, jnp.float32))
        np.testing.assert_allclose(found, log_pdf, rtol=1e-4)
        entropy = np.broadcast_to(stats.norm.entropy(0, np.exp(log_std)), mean.shape).sum(axes)
        np.testing.assert_allclose(normal.entropy(params), entropy, rtol=1e-5, atol=1e-6)


def test_noise_has_the_distribution_that_it_should():
    gumbel = agent_of("categorical").draw_noise(500, 10)
    assert gumbel.shape == (500, 10, 4)
    assert stats.kstest(gumbel.ravel(), "gumbel_r").pvalue > 0.01
    normal = agent_of("gaussian").draw_noise(500, 10)
    assert stats.kstest(normal.ravel(), "norm").pvalue > 0.01


def test_the_seed_alone_decides_on_the_noise(head):
    first = agent_of(head, seed=1)
    noise = [first.draw_noise(4, 6) for _ in range(2)]
    assert not np.array_equal(*noise)
    second = agent_of(head, seed=1)
    np.testing.assert_array_equal(second.draw_noise(4, 6), noise[0])
    assert not np.array_equal(agent_of(head, seed=2).draw_noise(4, 6), noise[0])
    # All of its bits, and not the lower 32 of them.
    assert not np.array_equal(agent_of(head, seed=1 + 2**32).draw_noise(4, 6), noise[0])
    # A seed of its own leaves the agent's noise alone.
    one = second.draw_noise(4, 6, seed=9)
    np.testing.assert_array_equal(second.draw_noise(4, 6), noise[1])
    np.testing.assert_array_equal(first.draw_noise(4, 6, seed=9), one)


def test_same_noise_gives_same_actions_however_columns_are_grouped(head):
    agent = agent_of(head)
    noise = agent.draw_noise(20, 6)
    for t in range(20):
        whole, info = agent.step(OBSERVATION, noise=noise[t])
        for group in (slice(0, 2), slice(2, 6)):
            part, of_part = agent.step(OBSERVATION[group], noise=noise[t, group])
            np.testing.assert_allclose(part, whole[group], atol=1e-5)
            np.testing.assert_allclose(of_part.value, info.value[group], atol=1e-5)


def test_eval_mode_acts_with_the_mode_and_draws_nothing(head):
    agent = agent_of(head)
    before = agent.state()["key"]
    agent.eval_mode()
    first, _ = agent.step(OBSERVATION)
    second, _ = agent.step(OBSERVATION, noise=np.full((6, 4), 100, np.float32))
    assert agent.draw_noise(3, 6) is None
    outputs, _ = forward(parameters(agent), OBSERVATION)
    expected = outputs.argmax(-1) + 2 if head == "categorical" else outputs
    np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(agent.state()["key"], before)
    agent.sample_mode()
    agent.step(OBSERVATION)
    assert not np.array_equal(agent.state()["key"], before)


def test_state_round_trip(head):
    agent, other = agent_of(head, seed=1), agent_of(head, seed=2)
    agent.draw_noise(2, 6)
    state = agent.state()
    assert all(isinstance(array, np.ndarray) for array in state["model"].values())
    kept = {name: array.copy() for name, array in state["model"].items()}
    as_json = json.loads(json.dumps({name: array.tolist() for name, array in kept.items()}))
    other.load_state({"model": {n: np.array(x) for n, x in as_json.items()}, "key": state["key"]})
    for _ in range(2):
        (mine, of_mine), (theirs, of_theirs) = agent.step(OBSERVATION), other.step(OBSERVATION)
        np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(of_mine.value, of_theirs.value)
    # Neither an update nor the owner of the arrays changes what the other has.
    ppo(other).optimize_agent(48, batch_of(other))
    assert_equal(state["model"], kept)
    assert_equal(parameters(agent), kept)
    other.load_state(state)
    for array in state["model"].values():
        array[...] = 0
    assert_equal(parameters(other), kept)


def test_a_view_of_parameters_survives_an_update():
    agent = agent_of("categorical")
    views = {name: np.asarray(leaf) for name, leaf in agent.model.parameters.items()}
    kept = {name: view.copy() for name, view in views.items()}
    ppo(agent).optimize_agent(48, batch_of(agent))
    assert not np.array_equal(
        parameters(agent)["policy.layers.0.weight"], kept["policy.layers.0.weight"]
    )
    assert_equal(views, kept)


def test_state_of_another_model_is_refused_whole():
    agent, small = agent_of("categorical"), agent_of("categorical", hidden=(4, 8))
    before = parameters(small)
    with pytest.raises(
        ValueError, match=r"^PgModel: critic.layers.0.bias: expected shape \(4,\), got \(8,\)"
    ):
        small.load_state(agent.state())
    assert_equal(parameters(small), before)
    with pytest.raises(ValueError, match=r"^PgModel: expected the parameters .*log_std.*, got "):
        agent_of("gaussian").load_state(agent.state())


def linear(parameters, observation, goal=0.0):
    """Return logits and values."""
    weight, bias = parameters["layers"][0]
    outputs = observation.place @ weight + bias + goal + observation.time
    return PgOutput(outputs[:, :2], outputs[:, 2])


def test_a_model_is_any_function_of_any_tree():
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(3, 3)).astype(np.float32), np.zeros(3, np.float32)
    model = Model(linear, {"layers": [(weight, bias)]})
    agent = PgAgent(model, Categorical(2), seed=0)
    assert repr(agent) == "PgAgent(Model, 12 parameters, cpu)"
    assert list(parameters(agent)) == ["layers.0.0", "layers.0.1"]

    class Parts(gym.Env):
        observation_space = gym.spaces.Dict(
            place=gym.spaces.Box(-9, 9, (3,)), time=gym.spaces.Box(0, 1, (1,))
        )
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), 1.0, False, False, {}

    cages = build_cages(Parts, 2, seeds=Seeds(0))
    with build_sampler(BatchSpec(3, 2), cages, NumpyHandler(agent)) as sampler:
        samples, _ = sampler.collect_batch(0)
    place, time = (np.asarray(getattr(samples.env.observation, n))[:3] for n in ("place", "time"))
    value = (place @ weight + time)[..., 2]
    np.testing.assert_allclose(np.asarray(samples.agent.agent_info.value)[:3], value, rtol=1e-5)
    # Its further inputs are those that a handler adds.
    first = NamedTuple(place=place[0], time=time[0])
    shifted = agent.value(first, goal=np.float32(1))
    np.testing.assert_allclose(shifted, value[0] + 1, rtol=1e-5)


def nothing(parameters, observation):
    return observation


def column(parameters, observation):
    return PgOutput(observation, observation[:, :1])


def one_output(parameters, observation):
    return PgOutput(observation[:, :1], observation[:, 0])


def one_mean(parameters, observation):
    return PgOutput(GaussianParams(observation[:, :1], np.zeros(2)), observation[:, 0])


@pytest.mark.parametrize(
    ("apply", "distribution", "error", "said"),
    [
        (nothing, Categorical(3), TypeError, r"^nothing: expected PgOutput.*of shape \(6, 3\)"),
        (column, Categorical(3), ValueError, r"^column: expected values .*\(6, 1\); squeeze"),
        (
            one_output,
            Categorical(2),
            ValueError,
            r"^one_output: .*logits .*\.\.\., 2\], got \(6, 1\)",
        ),
        (one_mean, Gaussian(2), ValueError, r"^one_mean: .* means .*\.\.\., 2\], got \(6, 1\)"),
    ],
)
def test_outputs_of_another_form_are_refused(apply, distribution, error, said):
    agent = PgAgent(Model(apply, {"w": np.zeros(1, np.float32)}), distribution, seed=0)
    with pytest.raises(error, match=said):
        agent.step(OBSERVATION)


MODEL = partial(Model, column)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: PgAgent(column, Categorical(2), seed=0), TypeError, "model: expected a Model of"),
        (lambda: PgAgent(PgModel, Categorical(2), seed=0), TypeError, "model: .*; call it$"),
        (
            lambda: PgAgent(MODEL([np.ones(1)]), 2, seed=0),
            TypeError,
            "distribution: expected a Distribution of parllel.jax, got 2",
        ),
        (lambda: Model(3, {}), TypeError, "^Model: apply: expected a function, got 3"),
        (lambda: MODEL({"w": 3}), TypeError, r"parameters\['w'\]: expected an array of real"),
        (
            lambda: MODEL([np.ones(2, int)]),
            TypeError,
            r"parameters\[0\]: expected an array of real",
        ),
        (
            lambda: MODEL({"a.b": np.ones(1), "a": {"b": np.ones(1)}}),
            ValueError,
            r"expected a different path for each array, got \['a.b'\] twice",
        ),
        (
            lambda: PgModel(3, Categorical(2), (0,), 0),
            ValueError,
            r"^PgModel: every size must be at least 1, got \[3, 0, 2\]",
        ),
        (
            lambda: PgModel(3, Categorical(2), (8,), 0, activation="gelu"),
            ValueError,
            "activation: expected one of .'tanh', 'relu'., got 'gelu'",
        ),
        (
            lambda: PgModel(3, 2, (8,), 0),
            TypeError,
            "distribution: expected a Categorical or a Gau",
        ),
        (
            lambda: PgModel("3", Categorical(2), (), 0),
            TypeError,
            "observation_shape: expected a sh",
        ),
        (lambda: Categorical(0), ValueError, "Categorical: n: expected at least 1 action, got 0"),
        (lambda: Gaussian(1.5), TypeError, "Gaussian: action_shape: expected a shape"),
    ],
)
def test_parts_of_another_kind_are_refused(make, error, said):
    with pytest.raises(error, match=said):
        make()


def spaces(observation, action):
    return Spaces(observation, action, "any")


VECTOR, TWO = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2, start=-1)


def test_an_agent_fits_the_spaces():
    agent = agent_for(spaces(VECTOR, TWO), seeds=Seeds(0))
    assert agent.distribution == Categorical(2, start=-1)
    assert repr(agent) == "PgAgent(PgModel, 9,027 parameters, cpu)"
    again = agent_for(spaces(VECTOR, TWO), seeds=Seeds(0))
    assert_equal(parameters(again), parameters(agent))
    np.testing.assert_array_equal(again.draw_noise(2, 2), agent.draw_noise(2, 2))
    box = gym.spaces.Box(-1, 1, (2, 3))
    agent = agent_for(
        spaces(gym.spaces.Box(0, 9, (2, 2), np.int64), box),
        seeds=Seeds(0),
        hidden_sizes=(),
        initial_log_std=0.5,
    )
    action, info = agent.step(np.ones((4, 2, 2), np.int64))
    assert action.shape == (4, 2, 3)
    assert info.log_prob.shape == (4,)
    np.testing.assert_array_equal(parameters(agent)["head.log_std"], np.full((2, 3), 0.5))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((VECTOR, gym.spaces.MultiDiscrete([2, 2])), "expected actions of a Discrete space or a"),
        ((VECTOR, gym.spaces.Box(0, 9, (2,), np.int64)), "expected actions of a Discrete space"),
        ((gym.spaces.Dict(a=VECTOR), TWO), "expected observations of a Box that are not images"),
        ((gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), TWO), "a Box that are not images, got Box"),
        ((gym.spaces.Discrete(3), TWO), r"not images, got Discrete\(3\); give a PgAgent a Model"),
    ],
)
def test_other_spaces_are_named(wrong, said):
    with pytest.raises(TypeError, match=f"^agent_for: .*{said}.*parllel.torch.agent_for"):
        agent_for(spaces(*wrong), seeds=Seeds(0))


def test_a_device_that_is_not_there_is_named():
    said = (
        "^agent_for: device: expected one that JAX can use on this machine, got 'tpu'.*give device"
    )
    seeds = Seeds(0)
    with pytest.raises(UnusableDeviceError, match=said):
        agent_for(spaces(VECTOR, TWO), seeds=seeds, device="tpu")
    agent_for(spaces(VECTOR, TWO), seeds=seeds, device="cpu")  # no seed was taken before
    with pytest.raises(TypeError, match="device: expected a text such as 'cpu' or 'gpu', got 0"):
        PgAgent(MODEL([np.ones(1)]), Categorical(2), seed=0, device=0)
    with pytest.raises(TypeError, match=r"^PgAgent: seed: expected an int, got Seeds"):
        PgAgent(MODEL([np.ones(1)]), Categorical(2), seed=Seeds(0))
    with pytest.raises(TypeError, match="did you mean hidden_sizes"):
        agent_for(spaces(VECTOR, TWO), seeds=Seeds(0), hidden_size=(4,))


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_the_handlers_row_is_the_agents_step(name):
    cages = build_cages(partial(gym.make, name), 4, seeds=Seeds(0))
    agent, twin = (agent_for(cages[0].spaces, seeds=Seeds(0)) for _ in range(2))
    noise = twin.draw_noise(8, 4)
    with build_sampler(BatchSpec(8, 4), cages, NumpyHandler(agent)) as sampler:
        samples, _ = sampler.collect_batch(0)
    fields, seen = samples.agent, np.asarray(samples.env.observation)
    for t in range(8):
        action, info = twin.step(seen[t], noise=noise[t])
        np.testing.assert_array_equal(fields.action[t], action)
        np.testing.assert_array_equal(fields.agent_info.value[t], info.value)
        np.testing.assert_array_equal(fields.agent_info.log_prob[t], info.log_prob)
    last = twin.value(np.asarray(samples.env.observation[8]))
    np.testing.assert_array_equal(fields.agent_info.value[8], last)
