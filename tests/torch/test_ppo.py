from __future__ import annotations

import inspect
import math
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from ppo_setup import SETTINGS, categorical, gaussian, parameters, perturb, ppo

from parllel import BatchSpec, Seeds
from parllel.torch import PPO, TorchHandler, agent_for
from parllel.transforms import NormalizeAdvantage
from parllel_patterns import build_cages, build_sampler


@pytest.fixture(params=[categorical, gaussian])
def make(request):
    return request.param


def test_first_update_is_adam_on_the_clipped_gradient(make, make_batch):
    agent, twin = make(), make()
    samples, _ = make_batch(agent, dtype=np.float64)
    algorithm = ppo(agent, epochs=1, minibatches=1, clip_grad_norm=0.05)
    whole = algorithm.construct_agent_inputs(samples)
    before = parameters(agent)
    log_prob, entropy, value = twin.evaluate(whole.agent["observation"], whole.action)
    surrogate = (log_prob - whole.log_prob).exp() * whole.advantage  # no ratio is clipped yet
    value_loss = 0.5 * (value - whole.return_).square().mean()
    (-surrogate.mean() + 0.5 * value_loss - 0.01 * entropy.mean()).backward()
    norm = torch.nn.utils.clip_grad_norm_(twin.model.parameters(), 0.05).item()
    diagnostics = algorithm.optimize_agent(48, samples)
    assert diagnostics["gradient_norm"] == pytest.approx(norm)
    assert norm > 0.05
    for name, parameter in twin.model.named_parameters():
        # After one step both moments are unbiased: Adam moves by lr * g / (|g| + eps).
        gradient = parameter.grad.numpy()
        expected = before[name] - 1e-2 * gradient / (abs(gradient) + 1e-5)
        np.testing.assert_allclose(parameters(agent)[name], expected, atol=1e-6)


def test_without_clipping_the_norm_is_only_measured(make_batch):
    agents = [categorical(), categorical()]
    limits = [None, 1e9]
    for agent, limit in zip(agents, limits, strict=True):
        samples, _ = make_batch(agent, dtype=np.float64)
        ppo(agent, clip_grad_norm=limit).optimize_agent(48, samples)
    first, second = (parameters(agent) for agent in agents)
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("masked", [False, True])
def test_every_valid_step_is_in_one_minibatch_of_each_epoch(make_batch, masked):
    agent = categorical(torch.float32)
    samples, _ = make_batch(agent, valid=masked)
    valid = np.random.default_rng(4).random((8, 6)) < 0.6
    if masked:
        np.asarray(samples.env.valid)[:] = valid
    np.asarray(samples.agent.advantage)[:] = np.arange(48).reshape(8, 6)
    algorithm = ppo(agent, minibatches=5)
    inputs = algorithm.construct_agent_inputs(samples)
    orders = []
    for _ in range(2):
        minibatches = list(algorithm.minibatches(inputs))
        sizes = {len(minibatch.advantage) for minibatch in minibatches}
        assert max(sizes) - min(sizes) <= 1
        assert len(minibatches) == 5
        orders.append(torch.cat([m.advantage for m in minibatches]).tolist())
        actions = torch.cat([m.action for m in minibatches]).tolist()
        flat = np.array(samples.agent.action).reshape(-1)
        assert actions == flat[np.array(orders[-1], int)].tolist()
    expected = np.flatnonzero(valid) if masked else np.arange(48)
    assert sorted(orders[0]) == sorted(orders[1]) == expected.tolist()
    assert orders[0] != orders[1]


def test_what_is_not_valid_does_not_matter(make_batch):
    results = []
    for garbage in (0.0, np.nan):
        agent = categorical()
        samples, _ = make_batch(agent, dtype=np.float64, valid=True)
        valid = np.arange(48).reshape(8, 6) % 3 > 0
        np.asarray(samples.env.valid)[:] = valid
        for field in (samples.agent.observation, samples.agent.advantage, samples.agent.return_):
            np.asarray(field)[~valid] = garbage
        diagnostics = ppo(agent).optimize_agent(48, samples)
        results.append((parameters(agent), diagnostics))
    (first, mine), (second, theirs) = results
    assert mine == theirs
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert all(math.isfinite(value) for value in mine.values())


def test_inputs_are_views_of_the_samples(make_batch):
    samples, _ = make_batch(categorical(torch.float32))
    inputs = ppo(categorical(torch.float32)).construct_agent_inputs(samples)
    samples.agent.observation[2, 3] = np.float32(9)
    samples.agent.return_[1, 2] = np.float32(-4)
    assert inputs.agent["observation"][2 * 6 + 3].tolist() == [9] * 4
    assert inputs.return_[1 * 6 + 2] == -4
    assert inputs.valid is None


class CountingPPO(PPO):
    updates = 0

    def update(self, loss):
        self.updates += 1
        return super().update(loss)


def test_kl_limit_ends_the_batch_before_the_update_that_showed_it(make_batch):
    agent, unlimited = categorical(), categorical()
    samples, handler = make_batch(agent, dtype=np.float64)
    settings = {**SETTINGS, "learning_rate": 0.1, "epochs": 5}
    algorithm = CountingPPO(agent, **{**settings, "kl_limit": 1e-6})
    diagnostics = algorithm.optimize_agent(48, samples)
    assert algorithm.updates == 1
    assert (diagnostics["epochs"], diagnostics["early_stop"]) == (0, 1)
    assert diagnostics["approx_kl"] > 1e-6 / 2
    free = CountingPPO(unlimited, **settings)
    diagnostics = free.optimize_agent(48, samples)
    assert free.updates == 15
    assert (diagnostics["epochs"], diagnostics["early_stop"]) == (5, 0)
    # The next batch starts from a ratio of one again.
    handler.start_batch()
    for t in range(8):
        handler.step(t, slice(0, 6))
    algorithm.optimize_agent(96, samples)
    assert algorithm.updates == 2


def test_a_limit_at_the_first_minibatch_still_gives_diagnostics(make_batch):
    agent = categorical()
    samples, _ = make_batch(agent, dtype=np.float64)
    perturb(agent)
    before = parameters(agent)
    diagnostics = ppo(agent, kl_limit=1e-6).optimize_agent(48, samples)
    assert diagnostics["early_stop"] == 1
    assert diagnostics["approx_kl"] > 1e-6
    assert all(np.array_equal(before[name], array) for name, array in parameters(agent).items())


def test_state_round_trip_continues_bit_for_bit(make, make_batch, refill):
    agent = make(torch.float32)
    samples, handler = make_batch(agent)
    algorithm = ppo(agent)
    algorithm.optimize_agent(48, samples)
    saved_agent, saved = agent.state(), algorithm.state()
    for entry in saved["optimizer"]["state"].values():
        assert all(isinstance(value, np.ndarray) for value in entry.values())

    refill(handler, samples, 7)
    first = algorithm.optimize_agent(96, samples)
    expected = parameters(agent)

    other = make(torch.float32)
    perturb(other)
    resumed = ppo(other, seed=99)
    again, other_handler = make_batch(other, seed=5)
    other.load_state(saved_agent)
    resumed.load_state(saved)
    refill(other_handler, again, 7)
    assert resumed.optimize_agent(96, again) == first
    assert all(np.array_equal(expected[name], array) for name, array in parameters(other).items())


def test_a_saved_state_does_not_follow_the_optimiser(make_batch):
    agent = categorical(torch.float32)
    samples, _ = make_batch(agent)
    algorithm = ppo(agent)
    algorithm.optimize_agent(48, samples)
    state = algorithm.state()
    kept = {key: entry["exp_avg"].copy() for key, entry in state["optimizer"]["state"].items()}
    algorithm.optimize_agent(96, samples)
    assert all(
        np.array_equal(state["optimizer"]["state"][key]["exp_avg"], kept[key]) for key in kept
    )
    algorithm.load_state(state)
    algorithm.optimize_agent(96, samples)
    assert all(
        np.array_equal(state["optimizer"]["state"][key]["exp_avg"], kept[key]) for key in kept
    )


def test_learning_rate_falls_linearly_to_zero(make_batch):
    agent = categorical(torch.float32)
    samples, _ = make_batch(agent)
    algorithm = ppo(agent, learning_rate=0.4, learning_rate_anneal_steps=48 * 4)
    rates = [
        algorithm.optimize_agent(elapsed, samples)["learning_rate"]
        for elapsed in (48, 96, 144, 192, 240, 1000)
    ]
    assert rates == pytest.approx([0.4, 0.3, 0.2, 0.1, 0.0, 0.0])
    assert algorithm.optimizer.param_groups[0]["lr"] == 0


def test_the_policy_learns_what_pays(make_batch, refill):
    agent = categorical(torch.float32)
    samples, handler = make_batch(agent, T=16)
    algorithm = ppo(agent)
    for i in range(10):
        refill(handler, samples, i)
        np.asarray(samples.agent.advantage)[:] = np.asarray(samples.agent.action) == 2
        np.asarray(samples.agent.return_)[:] = 3
        diagnostics = algorithm.optimize_agent(96 * (i + 1), samples)
    assert (np.asarray(samples.agent.action) == 2).mean() > 0.8
    assert diagnostics["value_loss"] < 0.1


def test_explained_variance_is_that_of_the_sampled_values(make_batch):
    agent = categorical(torch.float32)
    samples, _ = make_batch(agent)
    value = np.array(samples.agent.agent_info.value, np.float64)
    return_ = np.array(samples.agent.return_, np.float64)
    expected = 1 - np.var(return_ - value) / np.var(return_)
    algorithm = ppo(agent)
    assert algorithm.optimize_agent(48, samples)["explained_variance"] == pytest.approx(expected)
    np.asarray(samples.agent.return_)[:] = 1
    assert math.isnan(algorithm.optimize_agent(48, samples)["explained_variance"])


def test_the_agent_ends_in_sample_mode_and_trains_in_train_mode(make_batch):
    agent = categorical(torch.float32)
    samples, _ = make_batch(agent)
    seen = []

    class Watching(PPO):
        def loss(self, inputs):
            seen.append(self.agent.model.training)
            return super().loss(inputs)

    Watching(agent, **SETTINGS).optimize_agent(48, samples)
    assert seen == [True] * 6
    assert not agent.model.training


def test_the_agent_ends_in_sample_mode_after_an_error_too(make_batch):
    agent = categorical(torch.float32)
    samples, _ = make_batch(agent)
    samples.agent.return_[3, 2] = np.float32(np.nan)
    with pytest.raises(FloatingPointError, match="loss is not finite"):
        ppo(agent).optimize_agent(48, samples)
    assert not agent.model.training


def test_a_loss_that_is_not_finite_is_refused_before_it_does_harm(make_batch):
    agent = categorical(torch.float32)
    samples, _ = make_batch(agent)
    samples.agent.return_[3, 2] = np.float32(np.nan)
    before = parameters(agent)
    algorithm = ppo(agent, minibatches=1)
    with pytest.raises(FloatingPointError, match=r"loss is not finite \(nan\).*'value_loss': nan"):
        algorithm.optimize_agent(48, samples)
    assert all(np.array_equal(before[name], array) for name, array in parameters(agent).items())


def test_a_gradient_that_is_not_finite_is_refused_before_it_does_harm():
    agent = categorical(torch.float32)
    before = parameters(agent)
    algorithm = ppo(agent)
    loss = (agent.model.policy.layers[0].weight - agent.model.policy.layers[0].weight).sum().sqrt()
    with pytest.raises(FloatingPointError, match="the gradient is not finite: its norm is nan"):
        algorithm.update(loss)
    assert all(np.array_equal(before[name], array) for name, array in parameters(agent).items())


def test_missing_fields_are_named(make_batch):
    agent = categorical(torch.float32)
    samples, _ = make_batch(agent)
    without = samples._replace(agent=samples.agent._replace(advantage=None))
    said = (
        r"^PPO needs the field agent\.advantage, which nothing writes\. "
        r"Give the sampler EstimateAdvantage\(discount, gae_lambda\), or EstimateMultiAgentAdvantage"
    )
    with pytest.raises(ValueError, match=said):
        ppo(agent).optimize_agent(48, without)


def test_a_sampler_without_advantages_is_told_which_transform_estimates_them():
    env = partial(gym.make, "CartPole-v1")
    cages = build_cages(env, 2, seeds=Seeds(0))
    agent = agent_for(cages[0].spaces, seeds=Seeds(0))
    with build_sampler(BatchSpec(4, 2), cages, TorchHandler(agent)) as sampler:
        samples, _ = sampler.collect_batch(0)
        with pytest.raises(ValueError, match=r"needs the field agent\.advantage, .* EstimateAdv"):
            ppo(agent).optimize_agent(8, samples)
        with pytest.raises(
            ValueError, match=r"^NormalizeAdvantage needs the field agent\.advantage"
        ):
            build_sampler(BatchSpec(4, 2), cages, TorchHandler(agent), [], [NormalizeAdvantage()])


def test_too_few_steps_are_refused(make_batch):
    agent = categorical(torch.float32)
    samples, _ = make_batch(agent, T=2, B=2, valid=True)
    np.asarray(samples.env.valid)[0] = True
    with pytest.raises(ValueError, match="each of 3 minibatches, got 2 valid steps"):
        ppo(agent, minibatches=3).optimize_agent(4, samples)


@pytest.mark.parametrize(
    "name", ["learning_rate", "epochs", "minibatches", "ratio_clip", "value_clip", "kl_limit"]
)
def test_arguments_out_of_range_are_named(name):
    with pytest.raises(ValueError, match=f"PPO: {name}: expected a number above 0, got 0"):
        ppo(categorical(), **{name: 0})


@pytest.mark.parametrize("name", ["epochs", "minibatches"])
def test_counts_are_whole_numbers(name):
    with pytest.raises(TypeError, match=f"PPO: {name}: expected a whole number, got 1.5"):
        ppo(categorical(), **{name: 1.5})
    ppo(categorical(), **{name: np.int64(2)})


def test_a_text_is_no_limit():
    with pytest.raises(TypeError, match="PPO: kl_limit: expected a number above 0, got 'x'"):
        ppo(categorical(), kl_limit="x")


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="PPO: seed: expected 0 or more, got -1"):
        ppo(categorical(), seed=-1)
    with pytest.raises(TypeError, match=r"PPO: seed: expected an int, got Seeds\(0\); give"):
        ppo(categorical(), seed=Seeds(0))


def test_more_minibatches_than_steps_are_refused_before_there_is_a_batch():
    algorithm = ppo(categorical(), minibatches=7)
    algorithm.check_batch_spec(BatchSpec(7, 1))
    with pytest.raises(ValueError, match=r"at most 6, the steps of a batch \(T=3, B=2\), got 7"):
        algorithm.check_batch_spec(BatchSpec(3, 2))


def test_the_constructor_has_no_defaults():
    signature = inspect.signature(PPO.__init__)
    given = {name: p.default for name, p in signature.parameters.items()}
    # How updates are computed is not a hyperparameter.
    assert given.pop("update") == "auto"
    assert len(given) == 13
    assert set(given.values()) == {inspect.Parameter.empty}
