"""Models with a memory, their agent and their PPO, against plain numpy and one step at a time."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ppo_setup import SETTINGS, parameters

from parllel import BatchSpec, Seeds
from parllel.agents import agent_examples
from parllel.buffers import NamedTuple
from parllel.cages import VectorizedCage
from parllel.samplers import EvalSampler, RecurrentSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.torch import (
    PPO,
    CategoricalHead,
    GaussianHead,
    RecurrentPgAgent,
    RecurrentPgModel,
    RecurrentPPO,
    TorchHandler,
)
from parllel.torch.distributions.categorical import Categorical
from parllel.torch.distributions.gaussian import Gaussian
from parllel.torch.distributions.multi_discrete import MultiDiscrete
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import allocate_eval_samples, allocate_samples

CELLS = ("lstm", "gru")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference_trunk(weights, cell, observation, state, prev_action=None):
    """Return features [T, N, H] and the last state, by the formulas of Hochreiter and of Cho."""
    x = observation
    n_layers = sum(name.startswith("layers") and name.endswith("weight") for name in weights)
    for i in range(n_layers):
        w, b = weights[f"layers.layers.{i}.weight"], weights[f"layers.layers.{i}.bias"]
        x = np.tanh(x @ w.T + b)
    if prev_action is not None:
        x = np.concatenate([x, prev_action], -1)
    w_x, w_h = weights["rnn.weight_ih_l0"], weights["rnn.weight_hh_l0"]
    b_x, b_h = weights["rnn.bias_ih_l0"], weights["rnn.bias_hh_l0"]
    h, *c = state
    c = c[0] if c else None
    features = []
    for row in x:
        if cell == "lstm":
            i, f, g, o = np.split(row @ w_x.T + b_x + h @ w_h.T + b_h, 4, axis=-1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            r_x, z_x, n_x = np.split(row @ w_x.T + b_x, 3, axis=-1)
            r_h, z_h, n_h = np.split(h @ w_h.T + b_h, 3, axis=-1)
            r, z = sigmoid(r_x + r_h), sigmoid(z_x + z_h)
            h = (1 - z) * np.tanh(n_x + r * n_h) + z * h
        features.append(h)
    return np.stack(features), [h] if c is None else [h, c]


def randomized(model, seed=0):
    """Give every parameter a value, biases too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model.double()


@pytest.mark.parametrize("prev_action", [False, True])
@pytest.mark.parametrize("hidden_sizes", [(), (5,), (5, 6)])
@pytest.mark.parametrize("cell", CELLS)
def test_a_model_computes_what_the_formulas_say(cell, hidden_sizes, prev_action):
    rng = np.random.default_rng(0)
    model = randomized(
        RecurrentPgModel(
            (2, 2), CategoricalHead(3), hidden_sizes, 7, cell=cell, prev_action=prev_action, seed=0
        )
    )
    names = ("hidden", "cell") if cell == "lstm" else ("hidden",)
    state = NamedTuple(**{name: torch.from_numpy(rng.normal(size=(4, 7))) for name in names})
    observation = rng.normal(size=(5, 4, 2, 2))
    actions = rng.integers(0, 3, (5, 4)) if prev_action else None
    given_actions = None if actions is None else torch.from_numpy(actions)
    (params, value), after = model(torch.from_numpy(observation), state, given_actions)

    weights = {name: p.detach().numpy() for name, p in model.trunk.named_parameters()}
    one_hot = None if actions is None else np.eye(3)[actions]
    features, expected = reference_trunk(
        weights, cell, observation.reshape(5, 4, 4), [leaf.numpy() for leaf in state], one_hot
    )
    for name, leaf in zip(names, expected, strict=True):
        np.testing.assert_allclose(after._get(name).detach(), leaf, rtol=1e-10, atol=1e-12)
    policy, critic = model.policy, model.critic
    for found, layer in ((params, policy), (value[..., None], critic)):
        w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        np.testing.assert_allclose(found.detach(), features @ w.T + b, rtol=1e-10, atol=1e-12)


def test_making_a_model_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    models = [
        RecurrentPgModel((2,), CategoricalHead(3), (4,), 5, cell="lstm", seed=s) for s in (1, 1, 2)
    ]
    assert torch.equal(before, torch.random.get_rng_state())
    weights = [model.trunk.rnn.weight_ih_l0 for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    for gate in models[0].trunk.rnn.weight_hh_l0.split(5):
        torch.testing.assert_close(gate @ gate.T, torch.eye(5))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"cell": "rnn"}, r"cell: expected one of \['gru', 'lstm'\], got 'rnn'"),
        ({"rnn_size": 0}, "rnn_size: expected at least 1, got 0"),
    ],
)
def test_bad_sizes_are_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        RecurrentPgModel(
            (2,), CategoricalHead(3), (), **{"rnn_size": 4, "cell": "gru", **arguments}, seed=0
        )


def test_a_model_that_wants_the_previous_action_says_so():
    model = RecurrentPgModel((2,), CategoricalHead(3), (), 4, cell="gru", prev_action=True, seed=0)
    with pytest.raises(ValueError, match="prev_action: expected the previous actions, got None"):
        model(torch.zeros(1, 2, 2), model.initial_state(2))


# ---------------------------------------------------------------------- agent and batches


def categorical(cell="lstm", prev_action=True, **options):
    model = RecurrentPgModel(
        (3,), CategoricalHead(4), (6,), 5, cell=cell, prev_action=prev_action, seed=0
    )
    example = 0 if prev_action else None
    return RecurrentPgAgent(model, Categorical(4), prev_action=example, seed=1, **options)


def gaussian(cell="gru", prev_action=True, **options):
    model = RecurrentPgModel(
        (3,),
        GaussianHead((2,), initial_log_std=-0.5),
        (6,),
        5,
        cell=cell,
        prev_action=prev_action,
        seed=0,
    )
    example = np.zeros(2, np.float32) if prev_action else None
    return RecurrentPgAgent(model, Gaussian((2,)), prev_action=example, seed=1, **options)


AGENTS = {
    "lstm": categorical,
    "gru": partial(categorical, "gru"),
    "no previous action": partial(categorical, prev_action=False),
    "gaussian": gaussian,
    "gaussian, no previous action": partial(gaussian, "lstm", prev_action=False),
}


class SmallEnv(CountingEnv):
    """Numbers below one, which do not saturate a network."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)

    def __init__(self, action_space, **options):
        super().__init__(action_space=action_space, **options)
        self.observation_space = type(self).observation_space

    def _observation(self):
        rng = np.random.default_rng([self._mark, self._episode, self._step])
        return rng.uniform(-1, 1, 3).astype(np.float32)


def make_sampler(agent, T=6, lengths=((1, 4), (9,), (3, 7, 2)), transforms=()):
    continuous = isinstance(agent.distribution, Gaussian)
    action_space = gym.spaces.Box(-9, 9, (2,)) if continuous else gym.spaces.Discrete(4)
    factories = [partial(SmallEnv, action_space, lengths=each, end="alternate") for each in lengths]
    cage = VectorizedCage(factories, seeds=range(len(factories)), reset_automatically=False)
    handler = TorchHandler(agent)
    spec = BatchSpec(T, len(factories))
    samples = allocate_samples([cage], spec, handler, transforms)
    return RecurrentSampler(spec, [cage], handler, samples, batch_transforms=transforms)


@pytest.mark.parametrize("make", AGENTS.values(), ids=AGENTS.keys())
def test_the_initial_state_gives_all_that_was_sampled(make):
    check_reconstruction(make(store_rnn_state=True), ((1, 4), (9,), (3, 7, 2)), 6)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(AGENTS)),
    st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=3), min_size=1, max_size=4),
    st.integers(1, 9),
)
def test_the_initial_state_gives_all_that_was_sampled_over_any_resets(name, lengths, T):
    check_reconstruction(AGENTS[name](store_rnn_state=True), [tuple(x) for x in lengths], T)


def check_reconstruction(agent, lengths, T):
    with make_sampler(agent, T, lengths) as sampler:
        for _ in range(4):
            samples, _ = sampler.collect_batch(0)
            valid = np.asarray(samples.env.valid)
            info = samples.agent.agent_info
            rows = torch.from_numpy
            inputs = {"observation": rows(np.asarray(samples.agent.observation))}
            state = {
                name: rows(np.asarray(leaf))[0]
                for name, leaf in samples.agent.initial_rnn_state._asdict().items()
            }
            state = NamedTuple(**state)
            if agent.uses_prev_action:
                inputs["prev_action"] = rows(np.asarray(info.prev_action))
            log_prob, _, value = agent.evaluate(
                action=rows(np.asarray(samples.agent.action)), initial_rnn_state=state, **inputs
            )
            for found, stored in ((log_prob, info.log_prob), (value, info.value)):
                np.testing.assert_allclose(
                    found.detach().numpy()[valid], np.asarray(stored)[valid], rtol=1e-6, atol=1e-6
                )
            # The states themselves, one step after the other.
            for t in range(len(valid)):
                for name in state._fields:
                    stored = np.asarray(info.rnn_state._get(name))[t]
                    found = state._get(name).detach().numpy()
                    np.testing.assert_allclose(found[valid[t]], stored[valid[t]], rtol=0, atol=1e-6)
                row = {name: leaf[t : t + 1] for name, leaf in inputs.items()}
                _, state = agent.model(row.pop("observation"), state, **row)


def test_what_is_remembered_starts_at_zero_with_an_episode():
    agent = categorical()
    with make_sampler(agent, 4, ((2,), (11,))) as sampler:
        samples, _ = sampler.collect_batch(0)
        for leaf in samples.agent.initial_rnn_state:
            assert not np.asarray(leaf).any()
        assert np.asarray(samples.agent.agent_info.prev_action)[0].tolist() == [0, 0]
        action = np.asarray(samples.agent.action).copy()
        np.testing.assert_array_equal(
            np.asarray(samples.agent.agent_info.prev_action)[1:, 1], action[:-1, 1]
        )
        samples, _ = sampler.collect_batch(0)
        for leaf in samples.agent.initial_rnn_state:
            assert not np.asarray(leaf)[0, 0].any()  # has been reset
            assert np.asarray(leaf)[0, 1].all()  # goes on
        previous = np.asarray(samples.agent.agent_info.prev_action)[0]
        assert previous.tolist() == [0, action[-1, 1]]


def test_a_final_value_is_that_of_the_state_at_the_end():
    agent = categorical(prev_action=False)
    with make_sampler(agent, 5, ((2,),), [EstimateAdvantage(0.9, 0.8)]) as sampler:
        sampler.collect_batch(0)
        samples, _ = sampler.collect_batch(0)  # the second episode is truncated
        assert np.asarray(samples.env.truncated)[1, 0]
        observation = torch.from_numpy(np.asarray(samples.env.observation)[:3].copy())
        (_, value), _ = agent.model(observation, agent.model.initial_state(1))
        found = np.asarray(samples.agent.final_value)
        np.testing.assert_allclose(found[1, 0], value[2, 0].item(), rtol=1e-5)
        assert np.count_nonzero(found) == 1


def test_eval_mode_leaves_the_sampling_state_untouched():
    agent = categorical()
    with make_sampler(agent) as sampler:
        sampler.collect_batch(0)
        before = agent.state()
        cage = VectorizedCage(
            [partial(SmallEnv, gym.spaces.Discrete(4), lengths=3)] * 2, seeds=range(2)
        )
        with EvalSampler([cage], sampler.handler, allocate_eval_samples([cage]), 6) as evaluation:
            _, trajs = evaluation.collect_batch(0)
        assert [traj.length for traj in trajs] == [3] * 6
        after = agent.state()
        assert any(leaf.any() for leaf in before["memory"])
        for name, leaf in zip(range(9), before["memory"], strict=False):
            np.testing.assert_array_equal(after["memory"][name], leaf)
        np.testing.assert_array_equal(after["generator"], before["generator"])


def test_an_episode_of_evaluation_begins_with_nothing_remembered():
    agent = categorical()
    observation = torch.rand(2, 3)
    agent.eval_mode()
    first = agent.value(observation, env_indices=slice(0, 2))
    for _ in range(3):
        agent.step(observation, env_indices=slice(0, 2))
    assert not torch.equal(agent.value(observation, env_indices=slice(0, 2)), first)
    agent.reset_one(np.array([1]))
    later = agent.value(observation, env_indices=slice(0, 2))
    assert later[0] != first[0]
    assert later[1] == first[1]


@pytest.mark.parametrize("call", ["reset_one", "initial_rnn_state"])
def test_a_mask_is_not_taken_for_the_numbers_of_environments(call):
    agent = categorical()
    agent.step(torch.rand(3, 3), env_indices=slice(0, 3))
    with pytest.raises(ValueError, match=r"env_indices: expected .* numbers .*, got a mask"):
        getattr(agent, call)(np.array([False, False, True]))


def test_a_state_goes_on_where_it_was_left():
    one, other = categorical(), categorical()
    observation = torch.rand(4, 3, 3)
    for row in observation[:2]:
        one.step(row, env_indices=slice(0, 3))
    other.load_state(one.state())
    for row in observation[2:]:
        (action, info), (same_action, same_info) = (
            agent.step(row, env_indices=slice(0, 3)) for agent in (one, other)
        )
        assert torch.equal(action, same_action)
        for name in info._fields:
            assert torch.equal(info._get(name), same_info._get(name)), name


# ---------------------------------------------------------------------- PPO

TRANSFORMS = (partial(EstimateAdvantage, 0.9, 0.8), NormalizeAdvantage)


def ppo(agent, **options):
    return RecurrentPPO(agent, **{**SETTINGS, **options})


@pytest.mark.parametrize("make", AGENTS.values(), ids=AGENTS.keys())
def test_the_loss_is_the_mean_over_valid_steps_one_after_the_other(make):
    agent = make()
    transforms = [transform() for transform in TRANSFORMS]
    with make_sampler(agent, transforms=transforms) as sampler:
        for _ in range(2):
            samples, _ = sampler.collect_batch(0)
        algorithm = ppo(agent)
        with torch.no_grad():
            for p in agent.model.parameters():
                p.mul_(1.1)
        loss, diagnostics = algorithm.loss(algorithm.construct_agent_inputs(samples))
        surrogates, errors, entropies = [], [], []
        valid = np.asarray(samples.env.valid)
        info = samples.agent.agent_info
        for b in range(valid.shape[1]):
            state = NamedTuple(
                **{
                    name: torch.from_numpy(np.asarray(leaf)[0, b : b + 1])
                    for name, leaf in samples.agent.initial_rnn_state._asdict().items()
                }
            )
            for t in range(valid[:, b].sum()):
                cell = slice(b, b + 1)
                row = torch.from_numpy(np.asarray(samples.agent.observation)[t : t + 1, cell])
                given_action = (
                    (torch.from_numpy(np.asarray(info.prev_action)[t : t + 1, cell]),)
                    if agent.uses_prev_action
                    else ()
                )
                (params, value), state = agent.model(row, state, *given_action)
                action = torch.from_numpy(np.asarray(samples.agent.action)[t : t + 1, cell])
                log_prob, entropy = agent.distribution.log_prob_and_entropy(params, action)
                ratio = np.exp(log_prob.item() - np.asarray(info.log_prob)[t, b])
                advantage = np.asarray(samples.agent.advantage)[t, b]
                surrogates.append(min(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage))
                errors.append((value.item() - np.asarray(samples.agent.return_)[t, b]) ** 2)
                entropies.append(entropy.item())
        expected = {
            "policy_loss": -np.mean(surrogates),
            "value_loss": 0.5 * np.mean(errors),
            "entropy": np.mean(entropies),
        }
        for name, number in expected.items():
            assert diagnostics[name].item() == pytest.approx(number, rel=1e-4, abs=1e-5), name
        total = expected["policy_loss"] + 0.5 * expected["value_loss"] - 0.01 * expected["entropy"]
        assert loss.item() == pytest.approx(total, rel=1e-4, abs=1e-5)


def test_a_column_without_a_step_makes_no_update():
    agent = categorical()
    transforms = [transform() for transform in TRANSFORMS]
    lengths = tuple((n,) for n in (2, 5, 9))
    with make_sampler(agent, lengths=lengths, transforms=transforms) as sampler:
        samples, _ = sampler.collect_batch(0)
        # As after a crash in row 0.
        np.asarray(samples.env.valid)[:, 1] = False
        algorithm = ppo(agent, minibatches=3, epochs=2)
        taken = [
            minibatch.n_steps
            for minibatch in algorithm.minibatches(algorithm.construct_agent_inputs(samples))
        ]
        assert sorted(taken) == np.asarray(samples.env.valid).sum(axis=0)[[0, 2]].tolist()
        diagnostics = algorithm.optimize_agent(0, samples)
        assert all(np.isfinite(value) for value in diagnostics.values())


def test_every_column_is_in_one_minibatch_of_an_epoch_with_its_own_state():
    agent = categorical()
    transforms = [transform() for transform in TRANSFORMS]
    lengths = tuple((n,) for n in (1, 2, 5, 9, 3))
    with make_sampler(agent, lengths=lengths, transforms=transforms) as sampler:
        for _ in range(2):
            samples, _ = sampler.collect_batch(0)
        algorithm = ppo(agent, minibatches=2)
        inputs = algorithm.construct_agent_inputs(samples)
        assert inputs.n_steps == np.asarray(samples.env.valid).sum()
        first = torch.as_tensor(np.asarray(samples.env.observation)[0].copy())
        found = []
        for part in algorithm.minibatches(inputs):
            state = part.agent["initial_rnn_state"]
            for n in range(part.return_.shape[1]):
                seen = part.agent["observation"][0, n]
                (b,) = (seen == first).all(1).nonzero()[0].tolist()
                found.append(b)
                for name in state._fields:
                    whole = np.asarray(samples.agent.initial_rnn_state._get(name))[0]
                    np.testing.assert_array_equal(state._get(name)[n], whole[b])
            assert part.valid.any(dim=1).all()  # rows after the last valid one are left out
        assert sorted(found) == list(range(5))


def test_what_is_not_valid_changes_nothing():
    changed = []
    for change in (False, True):
        agent = categorical()
        transforms = [transform() for transform in TRANSFORMS]
        with make_sampler(agent, transforms=transforms) as sampler:
            samples, _ = sampler.collect_batch(0)
            if change:
                waiting = ~np.asarray(samples.env.valid)
                assert waiting.any()
                np.asarray(samples.agent.advantage)[waiting] = 7
                np.asarray(samples.agent.return_)[waiting] = -3
                np.asarray(samples.agent.agent_info.log_prob)[waiting] = 2
            ppo(agent).optimize_agent(18, samples)
        changed.append(parameters(agent))
    for name, array in changed[0].items():
        np.testing.assert_array_equal(array, changed[1][name], err_msg=name)


def deviating():
    """An agent whose network computes the standard deviation."""
    head = GaussianHead((2,), initial_log_std=-0.5, state_dependent=True)
    model = RecurrentPgModel((3,), head, (6,), 5, cell="gru", seed=0)
    return RecurrentPgAgent(model, Gaussian((2,)), prev_action=None, seed=1)


@pytest.mark.parametrize("make", [categorical, gaussian, deviating])
@pytest.mark.parametrize(
    "options",
    [
        {"value_clip": 0.1},
        {"learning_rate_anneal_steps": 500, "entropy_loss_coeff": 0.0, "clip_grad_norm": None},
        {"kl_limit": 1e-6},
    ],
    ids=lambda options: "-".join(options),
)
@pytest.mark.few(2)
def test_flat_parameters_learn_what_autograd_learns(make, options):
    """After 80 updates, where none is skipped."""
    found = []
    for update in ("auto", "autograd"):
        agent = make()
        transforms = [transform() for transform in TRANSFORMS]
        with make_sampler(agent, transforms=transforms) as sampler:
            more = {"learning_rate": 3e-4, "epochs": 10, "minibatches": 2, **options}
            algorithm = ppo(agent, update=update, **more)
            samples, _ = sampler.collect_batch(0)
            diagnostics = [dict(algorithm.optimize_agent(18 * i, samples)) for i in range(1, 5)]
        found.append((parameters(agent), diagnostics, algorithm.update_method))
    (mine, seen, method), (theirs, expected, other) = found
    assert (method, other) == ("flat parameters", "autograd")
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-6, err_msg=name)
    for one, two in zip(seen, expected, strict=True):
        assert one == pytest.approx(two, rel=1e-3, abs=1e-5, nan_ok=True)
    if "kl_limit" in options:
        assert {one["early_stop"] for one in seen} >= {1}


def test_more_minibatches_than_columns_are_refused():
    agent = categorical()
    transforms = [transform() for transform in TRANSFORMS]
    with make_sampler(agent, transforms=transforms) as sampler:
        samples, _ = sampler.collect_batch(0)
        with pytest.raises(
            ValueError, match="at least one column for each of 4 minibatches, got B=3"
        ):
            ppo(agent, minibatches=4).optimize_agent(18, samples)
    with pytest.raises(ValueError, match="at most 3, the columns of a batch, got 4"):
        ppo(agent, minibatches=4).check_batch_spec(sampler.batch_spec)


@pytest.mark.parametrize(
    ("example", "got"), [([0, 0], r"int64 \(2,\)"), (np.zeros((1, 2), np.float32), r"\(1, 2\)")]
)
def test_an_example_that_would_change_the_previous_action_is_refused(example, got):
    agent = RecurrentPgAgent(gaussian().model, Gaussian((2,)), prev_action=example, seed=0)
    with pytest.raises(ValueError, match=rf"prev_action: .*float32 \(2,\), got .*{got}"):
        agent_examples(TorchHandler(agent), np.zeros(3, np.float32))


def test_several_choices_at_once_are_no_previous_action_for_the_model():
    agent = RecurrentPgAgent(categorical().model, MultiDiscrete((2, 2)), prev_action=[0, 0], seed=0)
    with pytest.raises(
        ValueError, match=r"prev_action: expected single choices \[T, N\], got \[1, 1"
    ):
        agent_examples(TorchHandler(agent), np.zeros(3, np.float32))


def test_ppo_without_a_memory_says_which_takes_one():
    with pytest.raises(TypeError, match=r"PPO: agent: expected .*, got .*\. Use RecurrentPPO"):
        PPO(categorical(), **SETTINGS)


def test_seeds_of_a_build_script_are_enough():
    seeds = Seeds(3)
    model = RecurrentPgModel(
        (3,), CategoricalHead(4), (), 5, cell="gru", seed=seeds.integer("model")
    )
    agent = RecurrentPgAgent(model, Categorical(4), seed=seeds.integer("agent"))
    action, info = agent.step(torch.rand(2, 3), env_indices=slice(0, 2))
    assert action.shape == info.value.shape == (2,)
    assert info._fields == ("value", "log_prob")
