from __future__ import annotations

import inspect
import math

import jax
import numpy as np
import pytest
from jax_setup import SETTINGS, agent_of, assert_equal, batch_of, parameters, ppo

from parllel import BatchSpec
from parllel.agents import RandomAgent
from parllel.jax import PPO, Categorical, Model, PgAgent, PgModel


@pytest.fixture(params=["categorical", "gaussian"])
def head(request):
    return request.param


@pytest.mark.few(1)
def test_a_resumed_algorithm_continues_bit_for_bit(head):
    agent = agent_of(head)
    algorithm = ppo(agent)
    algorithm.optimize_agent(48, batch_of(agent))
    saved_agent, saved = agent.state(), algorithm.state()
    assert all(isinstance(value, np.ndarray) for value in saved["optimizer"].values())
    kept = {name: value.copy() for name, value in saved["optimizer"].items()}
    samples = batch_of(agent, seed=7)
    expected = algorithm.optimize_agent(96, samples)
    other = agent_of(head, seed=3)
    resumed = ppo(other, seed=99)
    resumed.optimize_agent(48, samples)
    other.load_state(saved_agent)
    resumed.load_state(saved)
    assert resumed.optimize_agent(96, samples) == expected
    assert_equal(parameters(other), parameters(agent))
    assert_equal(saved["optimizer"], kept)


def test_a_state_of_another_model_is_refused(head):
    small = ppo(agent_of(head, hidden=(4,)))
    with pytest.raises(ValueError, match=r"^PPO: expected the moments .*count.*, got "):
        ppo(agent_of(head)).load_state(small.state())


def test_what_is_not_valid_does_not_matter(head):
    valid = np.arange(48).reshape(8, 6) % 3 > 0
    results = []
    for garbage in (0.0, np.nan):
        agent = agent_of(head)
        samples = batch_of(agent, valid=valid)
        for field in ("observation", "advantage", "return_"):
            getattr(samples.agent, field)[~valid] = garbage
        samples.agent.agent_info.log_prob[~valid] = garbage
        results.append((ppo(agent).optimize_agent(48, samples), parameters(agent)))
    (first, mine), (second, theirs) = results
    assert first == second
    assert_equal(mine, theirs)
    assert all(math.isfinite(value) for value in first.values())


def test_kl_limit_ends_the_batch_before_the_update_that_showed_it():
    agent = agent_of("categorical")
    samples = batch_of(agent)
    before = parameters(agent)
    diagnostics = ppo(agent, kl_limit=1e-6).optimize_agent(48, samples)
    assert (diagnostics["epochs"], diagnostics["early_stop"]) == (0, 1)
    assert diagnostics["approx_kl"] > 1e-6
    assert "gradient_norm" not in diagnostics
    assert_equal(parameters(agent), before)
    samples.agent.agent_info.log_prob[:] = log_prob_of(agent, samples)
    algorithm = ppo(agent, kl_limit=1e-6, epochs=5, learning_rate=0.1)
    diagnostics = algorithm.optimize_agent(48, samples)
    # The first minibatch is learned, and the second shows how far that went.
    assert (diagnostics["epochs"], diagnostics["early_stop"]) == (0, 1)
    assert algorithm.state()["optimizer"]["count"] == 1
    free = ppo(agent_of("categorical"), epochs=5)
    diagnostics = free.optimize_agent(48, samples)
    assert (diagnostics["epochs"], diagnostics["early_stop"]) == (5, 0)
    assert free.state()["optimizer"]["count"] == 15


def log_prob_of(agent, samples):
    """Return the log probabilities of a batch's actions under the current policy."""
    shape = samples.agent.action.shape[:2]
    observation = samples.agent.observation.reshape(48, -1)
    action = samples.agent.action.reshape(48, *samples.agent.action.shape[2:])
    params = agent.model(observation).params
    return np.asarray(agent.distribution.log_prob(params, action)).reshape(shape)


def test_a_loss_that_is_not_finite_is_refused_before_it_does_harm(head):
    agent = agent_of(head)
    samples = batch_of(agent)
    samples.agent.return_[3, 2] = np.nan
    before = parameters(agent)
    algorithm = ppo(agent, minibatches=1)
    said = r"^PPO: the loss is not finite \(nan\); diagnostics: .*'value_loss': nan"
    with pytest.raises(FloatingPointError, match=said):
        algorithm.optimize_agent(48, samples)
    assert_equal(parameters(agent), before)
    assert algorithm.state()["optimizer"]["count"] == 0
    # And it goes on with the next batch.
    assert math.isfinite(algorithm.optimize_agent(96, batch_of(agent))["policy_loss"])


def test_updates_before_the_one_that_failed_are_kept():
    agent, twin = agent_of("categorical"), agent_of("categorical")
    samples = batch_of(agent)
    order = np.random.default_rng(0).permutation(48)
    bad, (first, _) = order[-1], np.array_split(order, 2)
    samples.agent.return_[np.unravel_index(bad, (8, 6))] = np.nan
    algorithm = ppo(agent, minibatches=2)
    with pytest.raises(FloatingPointError, match="loss is not finite"):
        algorithm.optimize_agent(48, samples)
    assert algorithm.state()["optimizer"]["count"] == 1
    valid = np.zeros(48, bool)
    valid[first] = True
    masked = samples._replace(env=samples.env._replace(valid=valid.reshape(8, 6)))
    ppo(twin, minibatches=1, epochs=1).optimize_agent(48, masked)
    for name, array in parameters(twin).items():
        np.testing.assert_allclose(parameters(agent)[name], array, atol=1e-6)


def root(parameters, observation):
    """A finite loss whose gradient is not: the slope of a root at zero."""
    zero = jax.numpy.sqrt(parameters["w"] - parameters["w"]).sum()
    return observation[:, :2] + zero, observation[:, 0]


def test_a_gradient_that_is_not_finite_is_refused_before_it_does_harm():
    agent = PgAgent(Model(root, {"w": np.ones(3, np.float32)}), Categorical(2), seed=0)
    samples = batch_of(agent)
    with pytest.raises(FloatingPointError, match="the gradient is not finite: its norm is nan"):
        ppo(agent).optimize_agent(48, samples)
    np.testing.assert_array_equal(parameters(agent)["w"], np.ones(3))


def test_learning_rate_falls_linearly_to_zero():
    agent = agent_of("categorical")
    samples = batch_of(agent)
    algorithm = ppo(agent, learning_rate=0.4, learning_rate_anneal_steps=48 * 4)
    elapsed = (48, 96, 144, 192, 240, 1000)
    rates = [algorithm.optimize_agent(n, samples)["learning_rate"] for n in elapsed]
    assert rates == pytest.approx([0.4, 0.3, 0.2, 0.1, 0.0, 0.0])
    before = parameters(agent)
    algorithm.optimize_agent(2000, samples)
    assert_equal(parameters(agent), before)


class Counting:
    """A model's function that counts how often it is traced."""

    def __init__(self, inner):
        self.inner, self.traces = inner, 0

    def __call__(self, parameters, observation):
        self.traces += 1
        return self.inner(parameters, observation)


def counting_agent():
    model = PgModel(3, Categorical(4), (4,), 0)
    counting = Counting(model.apply)
    return PgAgent(Model(counting, model.parameters), Categorical(4), seed=0), counting


def test_nothing_is_compiled_again_for_other_settings_or_shorter_batches():
    agent, counting = counting_agent()
    batches = [batch_of(agent, seed=i) for i in range(3)]
    algorithm = ppo(agent)
    algorithm.optimize_agent(48, batches[0])
    before = counting.traces
    algorithm.ratio_clip, algorithm.learning_rate, algorithm.clip_grad_norm = 0.1, 1e-3, 1.0
    algorithm.optimize_agent(96, batches[1])
    assert counting.traces == before
    # All of this batch but the last rows is in the shorter one.
    first = slice(0, 5)
    short = batches[2]._replace(
        agent=batches[2].agent[first], env=batches[2].env._replace(valid=None)
    )
    algorithm.optimize_agent(126, short)
    after = counting.traces
    assert after <= before + 2  # once, with filling
    for rows in (4, 3):
        part = batches[2].agent[slice(0, rows)]
        algorithm.optimize_agent(150, batches[2]._replace(agent=part))
    assert counting.traces == after


def test_a_short_batch_is_learned_as_if_it_were_the_longest():
    agent, twin = agent_of("gaussian"), agent_of("gaussian")
    samples = batch_of(agent)
    short = samples._replace(agent=samples.agent[slice(0, 5)])
    algorithm = ppo(agent)
    algorithm.check_batch_spec(BatchSpec(8, 6))
    found = algorithm.optimize_agent(30, short)
    expected = ppo(twin).optimize_agent(30, short)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    for name, array in parameters(twin).items():
        np.testing.assert_allclose(parameters(agent)[name], array, atol=1e-5)


def test_agents_of_equal_form_share_what_is_compiled():
    assert agent_of("categorical").steps is agent_of("categorical", seed=1).steps
    assert agent_of("categorical").steps is not agent_of("categorical", hidden=(4,)).steps


def test_missing_fields_are_named():
    agent = agent_of("categorical")
    samples = batch_of(agent)
    without = samples._replace(agent=samples.agent._replace(advantage=None))
    said = r"^PPO needs the field agent\.advantage, which nothing writes\. Give the sampler Estim"
    with pytest.raises(ValueError, match=said):
        ppo(agent).optimize_agent(48, without)


def test_too_few_steps_are_refused():
    agent = agent_of("categorical")
    valid = np.zeros((8, 6), bool)
    valid[0, :2] = True
    with pytest.raises(ValueError, match="each of 3 minibatches, got 2 valid steps"):
        ppo(agent).optimize_agent(48, batch_of(agent, valid=valid))
    with pytest.raises(ValueError, match=r"at most 6, the steps of a batch \(T=3, B=2\), got 7"):
        ppo(agent, minibatches=7).check_batch_spec(BatchSpec(3, 2))


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"learning_rate": 0}, ValueError, "learning_rate: expected a number above 0, got 0"),
        ({"epochs": 1.5}, TypeError, "epochs: expected a whole number, got 1.5"),
        ({"minibatches": 0}, ValueError, "minibatches: expected a number above 0, got 0"),
        ({"kl_limit": "x"}, TypeError, "kl_limit: expected a number above 0, got 'x'"),
        ({"seed": -1}, ValueError, "seed: expected 0 or more, got -1"),
        ({"lr": 1e-3}, TypeError, "unexpected argument 'lr'; did you mean learning_rate"),
    ],
)
def test_arguments_out_of_range_are_named(wrong, error, said):
    with pytest.raises(error, match=f"^PPO: {said}"):
        ppo(agent_of("categorical"), **wrong)


def test_an_agent_of_another_framework_is_refused():
    other = RandomAgent(Categorical(2).action_space, 0)
    with pytest.raises(TypeError, match=r"expected a PgAgent of parllel\.jax, got a .*RandomAgent"):
        ppo(other)


def test_the_constructor_has_the_arguments_of_the_parameters_and_no_defaults():
    given = {n: p.default for n, p in inspect.signature(PPO.__init__).parameters.items()}
    assert set(given) == {"self", "agent", *SETTINGS}
    assert set(given.values()) == {inspect.Parameter.empty}
