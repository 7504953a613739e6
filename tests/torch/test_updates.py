"""Compiled updates against autograd in float64, and against PyTorch's Adam."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from multi_agent_setup import build, independent, make_env, make_twins, shared
from ppo_setup import HEADS, N_INPUTS, SETTINGS, Wrapped, agent_of, parameters, perturb
from torch import nn

from parllel import Seeds
from parllel.algos.flat_adam import FlatAdam
from parllel.buffers import insert_field
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.tree import buffer_map
from parllel.cages import Spaces
from parllel.testing.resume_contract import assert_equal_states
from parllel.torch import (
    PPO,
    BehaviorCloning,
    Categorical,
    CategoricalHead,
    CategoricalPgAgent,
    CnnEncoder,
    Gaussian,
    GaussianHead,
    GaussianPgAgent,
    PgModel,
    agent_for,
)
from parllel.torch.algos.adam import Adam
from parllel.torch.algos.flat_network import NarrowPass, WidePass
from parllel.torch.algos.flat_update import FlatUpdate
from parllel.torch.algos.multi_agent_ppo import MultiAgentPPO
from parllel.torch.algos.ppo_inputs import PpoInputs
from parllel.torch.algos.ppo_loss import compiled_loss, loss_of_outputs
from parllel.torch.distributions.gaussian import GaussianParams
from parllel.torch.known_models import known_groups
from parllel.torch.models.cnn_encoder import CONVOLUTIONS_SMALL


def double(agent):
    """Return a copy of an agent that computes in float64."""
    twin = copy.deepcopy(agent)
    twin.model.double()
    return twin


def inputs_of(agent, n, *, seed, weighted=False):
    """Return made-up steps that an earlier policy took."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    observation = normal(n, N_INPUTS)
    action = agent.step(observation)[0].clone()
    with torch.no_grad():
        log_prob, _, value = agent.evaluate(observation, action)
    return PpoInputs(
        agent={"observation": observation},
        action=action,
        # Ratios on both sides of the clip range, and values on both sides of theirs.
        log_prob=log_prob + 0.3 * normal(n),
        value=value + 0.3 * normal(n),
        advantage=normal(n),
        return_=normal(n),
        weight=normal(n).exp() if weighted else None,
    )


def as_double(inputs):
    fields = {
        name: value.double()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for name, value in vars(inputs).items()
    }
    fields["agent"] = {"observation": inputs.agent["observation"].double()}
    return PpoInputs(**fields)


def reference(agent, inputs, **options):
    """Return loss, diagnostics and gradients of autograd in float64."""
    twin = double(agent)
    algorithm = PPO(twin, **{**SETTINGS, **options}, update="autograd")
    loss, diagnostics = algorithm.loss(as_double(inputs))
    loss.backward()
    gradients = [p.grad.reshape(-1) for p in twin.model.parameters()]
    return loss.item(), diagnostics, torch.cat(gradients).numpy()


def gradients_in_float32(agent, inputs, **options):
    """Return the gradients of autograd in the model's own dtype."""
    twin = copy.deepcopy(agent)
    loss, _ = PPO(twin, **{**SETTINGS, **options}, update="autograd").loss(inputs)
    loss.backward()
    return torch.cat([p.grad.reshape(-1) for p in twin.model.parameters()]).numpy()


def assert_close_to_largest(found, expected, share):
    np.testing.assert_allclose(found, expected, rtol=0, atol=share * abs(expected).max())


def least_input_of_a_unit(agent, inputs):
    """Return the number nearest to zero that enters a rectifier."""
    model = double(agent).model
    x, least = inputs.agent["observation"].double(), math.inf
    for layer in [] if model.encoder is None else model.encoder.layers:
        x = layer(x)
        least, x = min(least, x.abs().min().item()), x.relu()
    for network in (model.policy, model.critic):
        y = x
        for layer in network.layers[:-1]:
            y = layer(y)
            least, y = min(least, y.abs().min().item()), y.relu()
    return least


OPTIONS = st.fixed_dictionaries(
    {
        "ratio_clip": st.sampled_from([0.05, 0.2, 1.5]),
        "value_clip": st.sampled_from([None, 0.1, 0.5]),
        "value_loss_coeff": st.sampled_from([0.0, 0.5, 2.0]),
        "entropy_loss_coeff": st.sampled_from([0.0, 0.01, 1.0]),
    }
)


# Layers of 32, 64, 96 and 128 units are multiplied by compiled functions, others by PyTorch.
UNITS = st.integers(1, 9) | st.sampled_from([32, 64, 96, 128, 160])


@given(
    head=st.sampled_from(HEADS),
    hidden=st.lists(UNITS, max_size=3) | st.lists(st.sampled_from([32, 64]), max_size=2),
    trunk=st.lists(UNITS, max_size=2),
    activation=st.sampled_from(["tanh", "relu"]),
    n=st.integers(1, 110),
    weighted=st.booleans(),
    options=OPTIONS,
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=80)
def test_gradients_are_autograds_in_float64(
    head, hidden, trunk, activation, n, weighted, options, seed
):
    agent = agent_of(head, hidden, seed, activation=activation, trunk=trunk)
    inputs = inputs_of(agent, n, seed=seed, weighted=weighted)
    # There a rounding decides whether a rectifier has a gradient.
    assume(activation == "tanh" or least_input_of_a_unit(agent, inputs) > 1e-5)
    loss, diagnostics, expected = reference(agent, inputs, **options)
    algorithm = PPO(agent, **{**SETTINGS, **options}, update="flat")
    adam = algorithm._adam.prepare()
    algorithm._adam.gather()
    flat = FlatUpdate(known_groups(agent, "", ""), (), adam)
    flat.load(inputs)
    # Two minibatches of one epoch, in another order: the second must not read the first's buffers.
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    flat.shuffle(order, [n])
    flat.loss(0, max(n // 2, 1), algorithm._coefficients())
    flat.backward()
    found_loss, sums = flat.loss(0, n, algorithm._coefficients())
    flat.backward()
    # Where terms cancel, float32 itself is further off: in autograd as well.
    usual = abs(gradients_in_float32(agent, inputs, **options) - expected).max()
    np.testing.assert_allclose(
        adam.gradients, expected, rtol=0, atol=max(1e-6 * abs(expected).max(), 3 * usual)
    )
    assert found_loss == pytest.approx(loss, rel=1e-5, abs=1e-5)
    terms = algorithm._diagnostics_of(sums)
    for name, value in diagnostics.items():
        assert terms[name] == pytest.approx(value.item(), rel=1e-4, abs=1e-5)


@given(
    n=st.integers(1, 40),
    k=st.integers(1, 4),
    masked=st.booleans(),
    weighted=st.booleans(),
    split=st.booleans(),
    options=OPTIONS,
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=100)
def test_the_compiled_loss_is_autograds(n, k, masked, weighted, split, options, seed):
    rng = np.random.default_rng(seed)
    outputs = [torch.tensor(rng.normal(size=(n, k)), requires_grad=True) for _ in range(3)]
    fields = {
        name: torch.from_numpy(rng.normal(size=(n, k)))
        for name in ("log_prob", "value", "advantage", "return_")
    }
    if weighted:
        fields["weight"] = torch.from_numpy(rng.random((n, k)))
    mask = torch.from_numpy(rng.random((n, k)) < 0.5) if masked else None
    groups = [[column] for column in range(k)] if split else [list(range(k))]
    algorithm = PPO(agent_of("gaussian"), **{**SETTINGS, **options})
    expected, means = 0.0, []
    for group in groups:
        # Summed by hand, entry by entry.
        chosen = [(i, j) for i in range(n) for j in group if mask is None or bool(mask[i, j])]
        for i, j in chosen:
            log_prob, entropy, value = (tensor[i, j] for tensor in outputs)
            ratio = torch.exp(log_prob - fields["log_prob"][i, j])
            clip = options["ratio_clip"]
            advantage = fields["advantage"][i, j]
            surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
            if weighted:
                surrogate = surrogate * fields["weight"][i, j]
            error = (value - fields["return_"][i, j]) ** 2
            if options["value_clip"] is not None:
                limit, old = options["value_clip"], fields["value"][i, j]
                near = old + (value - old).clamp(-limit, limit)
                error = torch.max(error, (near - fields["return_"][i, j]) ** 2)
            cost = options["value_loss_coeff"] * 0.5 * error - surrogate
            cost = cost - options["entropy_loss_coeff"] * entropy
            expected = expected + cost / len(chosen)
            means.append((surrogate.item(), 0.5 * error.item(), entropy.item()))
    narrow = [tensor.detach().float().requires_grad_() for tensor in outputs]
    inputs = PpoInputs(agent={}, action=None, **{k: v.float() for k, v in fields.items()})
    if mask is not None:
        # What an invalid entry holds is not read.
        inputs.advantage[~mask] = math.nan
    loss, sums = compiled_loss(
        tuple(narrow), inputs, mask, coefficients=algorithm._coefficients(), groups=groups
    )
    np.testing.assert_allclose(
        sums.sum(axis=0)[[0, 1, 2, 5]],
        [*np.sum(means, axis=0), len(means)] if means else np.zeros(4),
        rtol=1e-4,
        atol=1e-4,
    )
    if not means:
        assert loss.item() == 0
        return
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-4)
    loss.backward()
    expected.backward()
    for ours, theirs in zip(narrow, outputs, strict=True):
        found = np.zeros((n, k)) if ours.grad is None else ours.grad.numpy()
        wanted = np.zeros((n, k)) if theirs.grad is None else theirs.grad.numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@given(
    head=st.sampled_from(("categorical", "multi_discrete", "gaussian", "deviating")),
    sequences=st.booleans(),
    n=st.integers(1, 30),
    masked=st.booleans(),
    absent=st.booleans(),
    weighted=st.booleans(),
    options=OPTIONS,
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=100)
def test_the_loss_of_outputs_is_autograds(
    head, sequences, n, masked, absent, weighted, options, seed
):
    rng = np.random.default_rng(seed)
    steps = (n, 2) if sequences else (n,)

    def normal(*shape):
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    agent = agent_of("gaussian" if head == "deviating" else head)
    distribution = agent.distribution
    # For the action of the first of each choice, which no mask forbids.
    starts = {"categorical": 2, "multi_discrete": torch.tensor([0, -1, 5])}
    if head in starts:
        params = [normal(*steps, 4 if head == "categorical" else 6)]
        action = torch.zeros(steps if head == "categorical" else (*steps, 3), dtype=torch.int64)
        action += starts[head]
        if masked:
            forbidden = torch.from_numpy(rng.random(params[0].shape) < 0.4)
            forbidden[..., [0] if head == "categorical" else [0, 3, 4]] = False
            params[0][forbidden] = -math.inf
    else:
        deviation = normal(*steps, 2) if head == "deviating" else normal(2)
        params = [normal(*steps, 2), 0.3 * deviation]
        action = normal(*steps, 2)
    fields = {name: normal(*steps) for name in ("log_prob", "value", "advantage", "return_")}
    if weighted:
        fields["weight"] = normal(*steps).exp()
    valid = torch.from_numpy(rng.random(steps) < 0.7) if absent else None
    tensors = [*params, normal(*steps)]
    wide = [tensor.double().requires_grad_() for tensor in tensors]

    def outputs_of(leaves):
        *found, value = leaves
        return (GaussianParams(*found) if len(found) > 1 else found[0]), value

    # Old policies that are not far from the new one.
    with torch.no_grad():
        start, _ = distribution.log_prob_and_entropy(outputs_of(tensors)[0], action)
    fields["log_prob"] = start + 0.3 * fields["log_prob"]
    algorithm = PPO(agent, **{**SETTINGS, **options}, update="autograd")
    params, value = outputs_of(wide)
    agent.evaluate = lambda **_: (*distribution.log_prob_and_entropy(params, action), value)
    inputs = PpoInputs(
        agent={}, action=action, **{k: v.double() for k, v in fields.items()}, valid=valid
    )
    loss, _ = algorithm.loss(inputs)
    loss.backward()
    narrow = [tensor.clone().requires_grad_() for tensor in tensors]
    params, value = outputs_of(narrow)
    inputs = PpoInputs(agent={}, action=action, **fields, valid=valid)
    if valid is not None:
        inputs.advantage[~valid] = math.nan
    found, _ = loss_of_outputs(
        params, value, distribution, inputs, coefficients=algorithm._coefficients()
    )
    (2 * found).backward()
    assert found.item() == pytest.approx(loss.item(), rel=1e-4, abs=1e-5)
    for one, two in zip(narrow, wide, strict=True):
        expected = np.nan_to_num(two.grad.numpy())
        np.testing.assert_allclose(
            one.grad / 2, expected, rtol=0, atol=1e-5 * max(1e-3, abs(expected).max())
        )


def test_masked_logits_have_no_gradient_and_no_entropy():
    from parllel.algos import compiled_updates as compiled

    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20, 5)).astype(np.float32)
    action = rng.integers(0, 2, (20, 1))
    logits[:, 3:][rng.random((20, 2)) < 0.7] = -np.inf
    fields = [rng.normal(size=20).astype(np.float32) for _ in range(4)]
    value = np.zeros(20, np.float32)
    gradient, grad_value, sums = np.empty_like(logits), np.empty_like(value), np.zeros((1, 6))
    none = np.empty(0, bool)
    # The likelihood ratio must be a number: the old policy is another one, but not far.
    wide = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    log_prob, entropy = Categorical(5).log_prob_and_entropy(wide, torch.from_numpy(action[:, 0]))
    fields[0] = log_prob.detach().float().numpy() + 0.1
    choices, coefficients = np.array([[5], [0]]), np.array([10.0, np.inf, 0.5, 0.7])
    bad = compiled.ppo_categorical(
        *(
            logits,
            none.reshape(0, 0),
            value,
            choices,
            action,
            *fields,
            np.empty(0, np.float32),
            none,
        ),
        *(coefficients, 1 / 20, gradient, grad_value, sums, np.zeros((2, 5))),
    )
    ratio = torch.exp(log_prob - torch.from_numpy(fields[0]).double())
    loss = -(ratio * torch.from_numpy(fields[2])).mean() - 0.7 * entropy.mean()
    loss.backward()
    assert bad == -1
    assert_close_to_largest(gradient, wide.grad.numpy(), 1e-6)
    assert not gradient[~np.isfinite(logits)].any()


def test_observations_that_are_encoded_once_are_learned_as_with_autograd():
    space = Dict({"place": Discrete(5, start=-2), "speed": Box(-1, 1, (2, 2))})
    agent = agent_for(Spaces(space, Discrete(3), "maze"), seeds=Seeds(0), hidden_sizes=(6,))
    rng = np.random.default_rng(0)
    place = torch.from_numpy(rng.integers(-2, 3, 30))
    speed = torch.from_numpy(rng.normal(size=(30, 2, 2)).astype(np.float32))
    fields = {
        name: torch.from_numpy(rng.normal(size=30).astype(np.float32))
        for name in ("log_prob", "value", "advantage", "return_")
    }
    inputs = PpoInputs(
        agent={"observation": NamedTuple(place=place, speed=speed)},
        action=torch.from_numpy(rng.integers(0, 3, 30)),
        **fields,
    )
    algorithm = PPO(agent, **SETTINGS, update="flat")
    adam = algorithm._adam.prepare()
    algorithm._adam.gather()
    flat = FlatUpdate(known_groups(agent, "", ""), (), adam)
    flat.check(inputs)
    flat.load(inputs)
    flat.shuffle(torch.arange(30), [30])
    found, _ = flat.loss(0, 30, algorithm._coefficients())
    flat.backward()
    loss, _ = PPO(agent, **SETTINGS, update="autograd").loss(inputs)
    loss.backward()
    expected = torch.cat([p.grad.reshape(-1) for p in agent.model.parameters()]).numpy()
    assert found == pytest.approx(loss.item(), rel=1e-5)
    assert_close_to_largest(adam.gradients, expected, 2e-6)


def after_updates(
    make_batch, refill, head, update, *, kind=PPO, change=None, layers=None, **options
):
    agent = agent_of(head, **(layers or {}))
    if change is not None:
        change(agent)
    some = {"dtype": np.float32, **options.pop("batch", {})}
    weighted = some.pop("weighted", False)
    samples, handler = make_batch_of(make_batch, agent, some)
    rng = np.random.default_rng(4)
    if some.get("valid"):
        np.asarray(samples.env.valid)[:] = rng.random((8, 6)) < 0.6
    if weighted:
        weight = np.exp(rng.normal(size=(8, 6))).astype(np.float32)
        info = samples.agent.agent_info
        samples = insert_field(samples, "agent.importance_weight", weight)
        for name in ("value", "log_prob"):
            near = np.asarray(getattr(info, name)) + 0.1 * weight
            samples = insert_field(samples, f"agent.learner_{name}", near)
    algorithm = kind(
        agent,
        **{**SETTINGS, "learning_rate": 3e-4, "epochs": 5, "minibatches": 4, **options},
        update=update,
    )
    perturb(agent, 0.02)
    diagnostics = []
    for number in range(4):
        diagnostics.append(dict(algorithm.optimize_agent(48 * (number + 1), samples)))
        refill(handler, samples, number + 1)
    return agent, algorithm, diagnostics


def make_batch_of(make_batch, agent, options):
    """Return a batch whose observations have as many numbers as the model's."""
    return make_batch(agent, n_inputs=N_INPUTS, **options)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"value_clip": 0.1, "entropy_loss_coeff": 0.0, "clip_grad_norm": None},
        {"learning_rate_anneal_steps": 500, "minibatches": 5},
        {"kl_limit": 1e-4},
        {"batch": {"valid": True}},
        {"batch": {"weighted": True}},
        {"layers": {"hidden": ()}},
        {"layers": {"hidden": (7, 6, 5), "activation": "relu"}},
        {"layers": {"hidden": (7,), "trunk": (6, 5)}},
        {"layers": {"hidden": (), "trunk": (6,), "activation": "relu"}},
        {"layers": {"hidden": (64, 64)}},
        {"layers": {"hidden": (32,), "trunk": (64, 32), "activation": "relu"}},
    ],
    ids=lambda options: "-".join(map(str, options)) or "default",
)
@pytest.mark.few(10)
def test_parameters_are_autograds_after_80_updates(make_batch, refill, head, options):
    found, algorithm, diagnostics = after_updates(make_batch, refill, head, "flat", **options)
    expected, other, wanted = after_updates(make_batch, refill, head, "autograd", **options)
    assert (algorithm.update_method, other.update_method) == ("flat", "autograd")
    mine, theirs = parameters(found), parameters(expected)
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-6, err_msg=name)
    for one, two in zip(diagnostics, wanted, strict=True):
        assert one == pytest.approx(two, rel=1e-3, abs=1e-5, nan_ok=True)
    # Some batches end early, others do not.
    if options.get("kl_limit"):
        assert {one["early_stop"] for one in diagnostics} >= {1}


def test_a_checkpoint_continues_with_another_way(make_batch, refill):
    """Flat, autograd and flat again gives what autograd gives throughout."""
    results = []
    for ways in (("flat", "autograd", "flat"), ("autograd",) * 3):
        agent = agent_of("gaussian")
        samples, handler = make_batch_of(make_batch, agent, {})
        saved = None
        for number, way in enumerate(ways):
            algorithm = PPO(agent, **{**SETTINGS, "learning_rate": 3e-4}, update=way)
            if saved is not None:
                algorithm.load_state(copy.deepcopy(saved))
            algorithm.optimize_agent(48, samples)
            refill(handler, samples, number)
            saved = algorithm.state()
        results.append((parameters(agent), saved))
    for name, array in results[0][0].items():
        np.testing.assert_allclose(array, results[1][0][name], rtol=0, atol=1e-6)
    mine, theirs = (saved["optimizer"] for _, saved in results)
    assert mine["state"].keys() == theirs["state"].keys()
    assert mine["state"]["0"]["step"] == theirs["state"]["0"]["step"] == 18
    assert mine["param_groups"][0].keys() == theirs["param_groups"][0].keys()


@pytest.mark.parametrize("change", ["without_a_bias", "with_tied_layers"])
def test_layers_that_are_put_together_otherwise_are_learned_by_autograd(make_batch, change):
    found = []
    for update in ("auto", "autograd"):
        agent = agent_of("gaussian")
        torch.manual_seed(0)
        globals()[change](agent)
        samples, _ = make_batch_of(make_batch, agent, {})
        algorithm = PPO(agent, **SETTINGS, update=update)
        algorithm.optimize_agent(48, samples)
        found.append((algorithm.update_method, parameters(agent)))
    (method, mine), (_, theirs) = found
    assert method == "flat parameters"
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-6, err_msg=name)


class OtherLoss(PPO):
    def loss(self, inputs):
        return super().loss(inputs)


class OtherUpdate(PPO):
    def update(self, loss):
        return super().update(loss)


class OtherGradients(PPO):
    def apply_gradients(self):
        self.optimizer.step()
        return 0.0


class OtherMinibatches(PPO):
    def minibatches(self, inputs):
        return super().minibatches(inputs)


class OtherInputs(PPO):
    def construct_agent_inputs(self, samples):
        return super().construct_agent_inputs(samples)


@pytest.mark.parametrize(
    ("kind", "method", "why"),
    [
        (OtherLoss, "flat parameters", "loss is overridden"),
        (OtherUpdate, "flat parameters", "update is overridden"),
        (OtherGradients, "autograd", "apply_gradients is overridden"),
        (OtherMinibatches, "flat parameters", "minibatches is overridden"),
        (OtherInputs, "flat parameters", "construct_agent_inputs is overridden"),
    ],
)
def test_a_subclass_is_called(make_batch, kind, method, why):
    agent = agent_of("categorical")
    samples, _ = make_batch_of(make_batch, agent, {})
    algorithm = kind(agent, **SETTINGS)
    algorithm.optimize_agent(48, samples)
    assert algorithm.update_method == method
    with pytest.raises(TypeError, match=f"{kind.__name__}: update='flat': {why}"):
        kind(agent, **SETTINGS, update="flat")


class Calm(PPO):
    """Keep the outputs of the policy small."""

    def loss(self, inputs):
        loss, diagnostics = super().loss(inputs)
        # Another, which is never differentiated, has buffers that are not the first's.
        super().loss(inputs.select(torch.arange(3)))
        outputs = self.agent.model.policy(inputs.agent["observation"])
        return 0.5 * loss + 0.1 * outputs.square().mean(), diagnostics


class Weighted(PPO):
    """Count every second step twice."""

    def construct_agent_inputs(self, samples):
        inputs = super().construct_agent_inputs(samples)
        return replace(inputs, weight=1 + torch.arange(len(inputs.return_)) % 2 * 1.0)


class Decaying(PPO):
    """Shrink all weights after each update."""

    def update(self, loss):
        norm = super().update(loss)
        for parameter in self.trained_parameters:
            parameter.data.mul_(0.999)
        return norm


class Striped(PPO):
    """Take every second step of the batch, without a copy."""

    def minibatches(self, inputs):
        for first in range(2):
            yield PpoInputs(**buffer_map(lambda leaf, first=first: leaf[first::2], vars(inputs)))


@pytest.mark.parametrize("kind", [Calm, Weighted, Decaying, Striped])
@pytest.mark.parametrize("head", ["categorical", "gaussian"])
@pytest.mark.parametrize("valid", [False, True])
@pytest.mark.few(5)
def test_subclasses_learn_as_with_autograd(make_batch, refill, kind, head, valid):
    options = {"kind": kind, "batch": {"valid": valid}}
    found, algorithm, diagnostics = after_updates(make_batch, refill, head, "auto", **options)
    expected, other, wanted = after_updates(make_batch, refill, head, "autograd", **options)
    assert (algorithm.update_method, other.update_method) == ("flat parameters", "autograd")
    mine, theirs = parameters(found), parameters(expected)
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-6, err_msg=name)
    for one, two in zip(diagnostics, wanted, strict=True):
        assert one == pytest.approx(two, rel=1e-3, abs=1e-5, nan_ok=True)


class Deviating(nn.Module):
    """A deviation for each state."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(N_INPUTS, 5)

    def forward(self, observation):
        mean, log_std, value = self.layer(observation).split([2, 2, 1], dim=-1)
        return GaussianParams(mean, 0.3 * log_std), value.squeeze(-1)


@pytest.mark.parametrize("head", [*HEADS, "deviating"])
@pytest.mark.parametrize(
    "options",
    [{}, {"value_clip": 0.1, "entropy_loss_coeff": 0.0}, {"batch": {"valid": True}}],
    ids=["default", "value_clip", "valid"],
)
@pytest.mark.few(2)
def test_other_models_learn_as_with_autograd(make_batch, refill, head, options):
    def unknown(agent):
        if head == "deviating":
            torch.manual_seed(0)
            agent.model = Deviating()
        else:
            wrapped(agent)

    results = []
    for update in ("auto", "autograd"):
        kind = "gaussian" if head == "deviating" else head
        some = {**options, "change": unknown}
        results.append(after_updates(make_batch, refill, kind, update, **some))
    (found, algorithm, diagnostics), (expected, other, wanted) = results
    assert (algorithm.update_method, other.update_method) == ("flat parameters", "autograd")
    theirs = parameters(expected)
    for name, array in parameters(found).items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-6, err_msg=name)
    for one, two in zip(diagnostics, wanted, strict=True):
        assert one == pytest.approx(two, rel=1e-3, abs=1e-5, nan_ok=True)


def test_a_method_of_one_object_is_called(make_batch):
    agent = agent_of("categorical")
    samples, _ = make_batch_of(make_batch, agent, {})
    algorithm = PPO(agent, **SETTINGS)
    calls, own = [], algorithm.loss
    algorithm.loss = lambda inputs: calls.append(1) or own(inputs)
    algorithm.optimize_agent(48, samples)
    assert len(calls) == SETTINGS["epochs"] * SETTINGS["minibatches"]


def hooked(agent):
    agent.model.policy.layers[0].register_forward_hook(lambda *args: None)


def backward_hooked(agent):
    agent.model.critic.layers[1].register_full_backward_hook(lambda *args: None)


def hooked_parameter(agent):
    next(agent.model.parameters()).register_hook(lambda gradient: None)


def wrapped(agent):
    agent.model = Wrapped(agent.model)


def frozen(agent):
    next(agent.model.parameters()).requires_grad_(False)


def without_a_bias(agent):
    layers = agent.model.policy.layers
    layers[1] = nn.Linear(layers[1].in_features, layers[1].out_features, bias=False)


def with_tied_layers(agent):
    agent.model.critic.layers[0] = agent.model.policy.layers[0]


def in_float64(agent):
    agent.model.double()


class OtherAgent(GaussianPgAgent):
    pass


class OtherModel(PgModel):
    pass


class OtherHead(GaussianHead):
    pass


class OtherNormal(Gaussian):
    pass


class OtherLinear(nn.Linear):
    pass


def of_another_class(agent):
    agent.__class__ = OtherAgent


def with_a_model_of_another_class(agent):
    agent.model.__class__ = OtherModel


def with_a_head_of_another_class(agent):
    agent.model.head.__class__ = OtherHead


def with_a_distribution_of_another_class(agent):
    agent.distribution = OtherNormal(2)


def with_a_layer_of_another_class(agent):
    agent.model.critic.layers[1].__class__ = OtherLinear


def with_its_own_method(agent):
    agent.evaluate = agent.evaluate


@pytest.mark.parametrize(
    ("change", "method"),
    [
        (hooked, "flat parameters"),
        (backward_hooked, "flat parameters"),
        (hooked_parameter, "flat parameters"),
        (wrapped, "flat parameters"),
        (of_another_class, "flat parameters"),
        (with_a_model_of_another_class, "flat parameters"),
        (with_a_head_of_another_class, "flat parameters"),
        (with_a_distribution_of_another_class, "flat parameters"),
        (with_a_layer_of_another_class, "flat parameters"),
        (with_its_own_method, "flat parameters"),
        (frozen, "autograd"),
        (in_float64, "autograd"),
    ],
)
@pytest.mark.parametrize("when", ["before", "between batches"])
def test_agents_that_are_not_known_fall_back(make_batch, change, method, when):
    agent = agent_of("gaussian")
    samples, _ = make_batch_of(make_batch, agent, {})
    if when == "before":
        change(agent)
        with pytest.raises((TypeError, ValueError), match=r"update='flat': .*give update='auto'"):
            PPO(agent, **SETTINGS, update="flat")
        algorithm = PPO(agent, **SETTINGS)
    else:
        algorithm = PPO(agent, **SETTINGS)
        algorithm.optimize_agent(48, samples)
        assert algorithm.update_method == "flat"
        change(agent)
    if change is in_float64:
        samples, _ = make_batch_of(make_batch, agent, {"dtype": np.float64})
    before = parameters(agent)
    algorithm.optimize_agent(96, samples)
    assert algorithm.update_method == method
    after = parameters(agent)
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    first = next(iter(before))
    assert changed == set(before) - ({first} if change is frozen else set())


def with_rectifiers(agent):
    agent.model.policy.activation = "relu"


def with_other_choices(agent):
    agent.distribution = Categorical(4, start=1)


@pytest.mark.parametrize("change", [with_rectifiers, with_other_choices])
def test_what_is_replaced_between_batches_is_learned(make_batch, change):
    found = []
    for update in ("flat", "autograd"):
        agent = agent_of("categorical")
        samples, _ = make_batch_of(make_batch, agent, {})
        # Choices that both distributions have.
        np.asarray(samples.agent.action)[:] = 2 + np.arange(48).reshape(8, 6) % 3
        algorithm = PPO(agent, **{**SETTINGS, "learning_rate": 3e-4}, update=update)
        algorithm.optimize_agent(48, samples)
        change(agent)
        algorithm.optimize_agent(96, samples)
        found.append(parameters(agent))
    for name, array in found[0].items():
        np.testing.assert_allclose(array, found[1][name], rtol=0, atol=1e-6, err_msg=name)


def test_images_are_learned_with_flat_parameters(make_batch):
    found = []
    for update in ("auto", "autograd"):
        generator = torch.Generator().manual_seed(0)
        encoder = CnnEncoder((6, 6), CONVOLUTIONS_SMALL, generator=generator)
        agent = CategoricalPgAgent(PgModel(encoder, CategoricalHead(3), (), generator), 3, seed=0)
        samples, _ = make_batch(agent, n_inputs=(6, 6))
        algorithm = PPO(agent, **{**SETTINGS, "learning_rate": 3e-4}, update=update)
        algorithm.optimize_agent(48, samples)
        found.append((algorithm.update_method, parameters(agent)))
    (method, mine), (other, theirs) = found
    assert (method, other) == ("flat parameters", "autograd")
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-6, err_msg=name)


def test_whoever_asks_for_the_optimizer_gets_it_and_keeps_it(make_batch):
    agent, twin = agent_of("gaussian"), agent_of("gaussian")
    samples, _ = make_batch_of(make_batch, agent, {})
    algorithm, other = PPO(agent, **SETTINGS), PPO(twin, **SETTINGS, update="autograd")
    for each in (algorithm, other):
        each.optimize_agent(48, samples)
        # The state of earlier steps is the optimiser's now.
        assert each.optimizer.state_dict()["state"][0]["step"] == 6
        each.optimizer.param_groups[0]["betas"] = (0.5, 0.9)
        each.optimize_agent(96, samples)
        assert each.update_method == "autograd"
    for name, array in parameters(agent).items():
        np.testing.assert_allclose(array, parameters(twin)[name], atol=1e-6)


def test_weights_that_are_loaded_between_batches_are_trained(make_batch):
    agent = agent_of("gaussian")
    samples, _ = make_batch_of(make_batch, agent, {})
    algorithm = PPO(agent, **{**SETTINGS, "learning_rate": 1e-9})
    algorithm.optimize_agent(48, samples)
    perturb(agent, 1.0)
    moved = parameters(agent)
    algorithm.optimize_agent(96, samples)
    for name, array in parameters(agent).items():
        np.testing.assert_allclose(array, moved[name], atol=1e-6)


@pytest.mark.parametrize("update", ["flat", "autograd"])
def test_an_update_that_is_not_finite_leaves_the_last_good_parameters(make_batch, update):
    agent = agent_of("gaussian")
    samples, _ = make_batch_of(make_batch, agent, {})
    # One epoch visits every step once, so the bad one comes in one of the minibatches.
    algorithm = PPO(agent, **{**SETTINGS, "epochs": 1, "minibatches": 8, "seed": 3}, update=update)
    np.asarray(samples.agent.advantage)[5, 3] = np.nan
    before = parameters(agent)
    with pytest.raises(FloatingPointError, match=r"PPO: the loss is not finite \(nan\)"):
        algorithm.optimize_agent(48, samples)
    after = parameters(agent)
    assert all(np.isfinite(array).all() for array in after.values())
    assert any(not np.array_equal(before[name], after[name]) for name in before)
    assert not agent.model.training


def test_an_action_that_is_none_is_refused(make_batch):
    agent = agent_of("multi_discrete")
    samples, _ = make_batch_of(make_batch, agent, {})
    samples.agent.action[2, 3] = [0, -1, 9]
    with pytest.raises(ValueError, match=r"PPO: agent.action: expected .*got \[0, -1, 9\]"):
        PPO(agent, **SETTINGS, update="flat").optimize_agent(48, samples)


def test_another_word_for_update_is_refused():
    with pytest.raises(
        ValueError, match="PPO: update: expected 'auto', 'autograd' or 'flat', got 'fast'"
    ):
        PPO(agent_of("gaussian"), **SETTINGS, update="fast")


@pytest.mark.parametrize("make", [partial(independent, (8,)), shared])
def test_several_agents_learn_as_with_autograd(make):
    results = []
    for update in ("auto", "autograd"):
        agent = make()
        factory = make_env if hasattr(agent, "agents") else make_twins
        settings = {**SETTINGS, "value_clip": 0.1, "learning_rate": 1e-3}
        algorithm = MultiAgentPPO(agent, **settings, update=update)
        with build(agent, factory) as sampler:
            batches = [sampler.collect_batch(0)[0]]
            diagnostics = [dict(algorithm.optimize_agent(32, batches[0])) for _ in range(4)]
        results.append((agent, diagnostics, algorithm.update_method))
    (mine, found, method), (theirs, wanted, other) = results
    assert (method, other) == ("flat", "autograd")
    pairs = zip(mine.model.parameters(), theirs.model.parameters(), strict=True)
    for one, two in pairs:
        np.testing.assert_allclose(one.detach(), two.detach(), rtol=0, atol=2e-6)
    for one, two in zip(found, wanted, strict=True):
        assert one == pytest.approx(two, rel=1e-3, abs=1e-5, nan_ok=True)


# ---------------------------------------------------------------- Adam


def some_parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    shapes = ((3, 2), (2,), (4, 1), ())
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in shapes]


def set_gradients(some, number, scale=1.0):
    generator = torch.Generator().manual_seed(number)
    for parameter in some:
        parameter.grad = scale * torch.randn(parameter.shape, generator=generator).to(
            parameter.dtype
        )


@pytest.mark.parametrize("max_norm", [math.inf, 0.5])
@pytest.mark.parametrize("n_first", [4, 1])
def test_steps_are_those_of_torch(max_norm, n_first):
    mine, theirs = some_parameters(), some_parameters(torch.float64)
    groups = [mine[:n_first], mine[n_first:]] if n_first < 4 else None
    adam = Adam(mine, groups=groups, lr=0.01, eps=1e-5)
    optimizer = torch.optim.Adam(theirs, lr=0.01, eps=1e-5)
    for number in range(20):
        scale = 10.0 ** (number % 5 - 2)
        set_gradients(mine, number, scale)
        set_gradients(theirs, number, scale)
        norms = adam.step(max_norm)
        parts = [theirs[:n_first], theirs[n_first:]] if n_first < 4 else [theirs]
        expected = [nn.utils.clip_grad_norm_(part, max_norm).item() for part in parts]
        optimizer.step()
        np.testing.assert_allclose(norms, expected, rtol=1e-6)
    assert adam.is_flat
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), atol=1e-6)


@pytest.mark.parametrize("flat", [True, False])
def test_a_norm_that_is_not_finite_changes_nothing(flat):
    some = some_parameters()
    adam = Adam(some, groups=[some[:1], some[1:]], lr=0.1, flat=flat)
    set_gradients(some, 0)
    some[2].grad[1, 0] = math.inf
    before = [p.detach().clone() for p in some]
    first, second = adam.step(1.0)
    assert (math.isfinite(first), math.isfinite(second)) == (True, False)
    assert all(torch.equal(p, q) for p, q in zip(some, before, strict=True))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_a_state_is_continued_as_torch_continues_it(first, second):
    expected, mine = some_parameters(), some_parameters()
    optimizer = torch.optim.Adam(expected, lr=0.1, eps=1e-5, fused=True)
    adam = Adam(mine, lr=0.1, eps=1e-5, flat=first)
    for number in range(6):
        if number == 3:
            saved = copy.deepcopy(adam.state())
            adam = Adam(mine, lr=0.1, eps=1e-5, flat=second)
            adam.load_state(saved)
            # Before an update, what was loaded is what is saved.
            assert_equal_states(adam.state(), saved)
        for some in (mine, expected):
            set_gradients(some, number)
        adam.step(math.inf)
        optimizer.step()
    assert adam.is_flat == second
    for one, other in zip(mine, expected, strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), atol=1e-6)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("used", [True, False])
def test_a_state_of_other_parameters_is_refused_at_once(flat, used):
    other = Adam(some_parameters()[:1], lr=0.1).state()
    some = some_parameters()
    adam = Adam(some, lr=0.1, flat=flat)
    if used:
        adam.prepare()
    with pytest.raises(
        ValueError, match=r"Adam: expected the state of one group of 4 .* got \[1\]"
    ):
        adam.load_state(other)
    assert len(adam.state()["param_groups"][0]["params"]) == 4


def test_a_state_that_only_torch_can_continue_is_continued_by_torch():
    some = some_parameters()
    optimizer = torch.optim.Adam(some, lr=0.1)
    set_gradients(some, 0)
    # A parameter without a gradient takes no step.
    some[0].grad = None
    optimizer.step()
    from parllel.torch.module_state import optimizer_state

    adam = Adam(some, lr=0.1)
    adam.load_state(optimizer_state(optimizer))
    set_gradients(some, 1)
    adam.step(math.inf)
    assert not adam.is_flat
    assert sorted(int(entry["step"]) for entry in adam.state()["state"].values()) == [1, 2, 2, 2]


def test_moments_of_other_shapes_are_refused():
    adam = FlatAdam([(2, 3)], groups=[1], learning_rate=0.1, eps=1e-8)
    state = FlatAdam([(3, 2)], groups=[1], learning_rate=0.1, eps=1e-8)
    state.norms()
    state.step(1.0)
    with pytest.raises(
        ValueError, match=r"FlatAdam: parameter 0: expected moments of shape \(2, 3\)"
    ):
        adam.load_state(state.state())


def test_replaced_data_of_a_parameter_is_trained():
    some = some_parameters()
    adam = Adam(some, lr=0.1)
    for number in range(2):
        set_gradients(some, number)
        adam.step(math.inf)
        some[0].data = torch.zeros(3, 2)
    set_gradients(some, 2)
    adam.step(math.inf)
    assert some[0].abs().min() > 0


def test_behavior_cloning_takes_flat_steps():
    agent = agent_of("gaussian")
    algorithm = BehaviorCloning(agent, seed=0)
    algorithm.prepare()
    assert algorithm._adam.is_flat


IMPORTS = """
import sys
import torch
from gymnasium.spaces import Box, Discrete
from parllel import Seeds
from parllel.algos import TransformingAlgorithm
from parllel.cages import Spaces
from parllel.torch import PPO, agent_for
from parllel_patterns import PPO_DEFAULTS

agent = agent_for(Spaces(Box(-1, 1, (3,)), Discrete(2), "small"), seeds=Seeds(0))
algorithm = TransformingAlgorithm(PPO(agent, **PPO_DEFAULTS, seed=0, update=sys.argv[1]), [])
before = set(sys.modules)
algorithm.prepare()
prepared = set(sys.modules)
algorithm.state()
found = ["torch._dynamo" in some for some in (before, prepared, set(sys.modules))]
print("numba" in before, *found, sorted(set(sys.modules) - prepared))
if sys.argv[1] == "auto":
    from parllel.torch.algos.ppo_inputs import PpoInputs

    names = ("log_prob", "value", "advantage", "return_")
    fields = {name: torch.rand(600) for name in names}
    seen, action = {"observation": torch.rand(600, 3)}, torch.zeros(600, dtype=torch.int64)
    flat = algorithm.algorithm._updates.start_batch(PpoInputs(seen, action, **fields), None)
    flat.shuffle(torch.arange(600), [600])
    flat.loss(0, 600, algorithm.algorithm._coefficients())
    flat.backward()
    print(algorithm.algorithm._updates.method, "torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ("auto", "False False False False []\nflat False\n"),
        ("autograd", "False False True True []\n"),
    ],
)
@pytest.mark.few(1)
def test_a_prepared_algorithm_imports_nothing_more(update, expected):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, update], capture_output=True, text=True, check=True
    )
    assert done.stdout == expected


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (64, 256)])
@pytest.mark.parametrize("in_place", [True, False])
def test_what_is_rectified_is_that_of_torch_though_it_is_not_finite(shape, in_place):
    from parllel.algos import compiled_updates as compiled

    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    special = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-42, -1e-42]
    x.flat[: len(special)] = special[: x.size]
    expected = torch.relu(torch.from_numpy(x.copy())).numpy()
    out = x if in_place else np.empty_like(x)
    compiled.rectify(x, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@given(n=st.integers(1, 300), units=st.integers(1, 70), seed=st.integers(0, 2**32 - 1))
def test_slopes_are_those_of_float64_and_so_are_their_sums(activation, n, units, seed):
    from parllel.algos import compiled_updates as compiled

    rng = np.random.default_rng(seed)
    gradient = rng.normal(size=(n, units)).astype(np.float32)
    output = np.tanh(rng.normal(size=(n, units))).astype(np.float32)
    output[rng.random((n, units)) < 0.1] = 0.0
    y = output.astype(np.float64)
    slopes = gradient * (1 - y * y if activation == "tanh" else y > 0)
    found_sums, scratch = np.full(units, np.nan, np.float32), np.full(units, np.nan)
    getattr(compiled, f"scale_by_{activation}_slope")(gradient, output, found_sums, scratch)
    # Without fused multiplication, 1 - y^2 loses digits near 1.
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-6)
    within = 1e-6 * np.abs(slopes).sum(axis=0).max() + 1e-7
    np.testing.assert_allclose(found_sums, slopes.sum(axis=0), rtol=0, atol=within)


def test_sums_of_many_slopes_keep_their_digits():
    from parllel.algos import compiled_updates as compiled

    n = 200_000
    found, scratch = np.empty(1, np.float32), np.empty(1)
    gradient = np.full((n, 1), 0.1, np.float32)
    compiled.scale_by_tanh_slope(gradient, np.zeros_like(gradient), found, scratch)
    # One float32 sum over all rows is off by more than a thousandth.
    assert found[0] == pytest.approx(n * np.float64(np.float32(0.1)), rel=1e-6)


@pytest.mark.parametrize(
    ("trunk", "hidden", "expected"),
    [
        ((), (64, 64), [NarrowPass, NarrowPass]),
        ((), (64, 48), [WidePass, WidePass]),
        ((), (256, 256), [WidePass, WidePass]),
        ((), (), [WidePass, WidePass]),
        ((32,), (64,), [NarrowPass, NarrowPass, NarrowPass]),
        # The gradient of the trunk's outputs has columns of its number.
        ((40,), (64,), [WidePass, WidePass, WidePass]),
        ((256,), (64,), [WidePass, NarrowPass, NarrowPass]),
        ((64,), (), [NarrowPass, WidePass, WidePass]),
    ],
)
def test_only_networks_with_narrow_layers_are_compiled(trunk, hidden, expected):
    agent = agent_of("categorical", hidden, trunk=trunk)
    algorithm = PPO(agent, **SETTINGS, update="flat")
    flat = FlatUpdate(known_groups(agent, "", ""), (), algorithm._adam.prepare())
    flat.load(inputs_of(agent, 5, seed=0))
    flat.loss_of_batch(algorithm._coefficients())
    (group,) = flat._groups
    assert [type(one) for one in (*group._current.trunk, *group._current.heads)] == expected


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_gradients_of_many_steps_keep_their_digits(activation):
    agent = agent_of("categorical", (64, 64), activation=activation)
    inputs = inputs_of(agent, 20_000, seed=0)
    _, _, expected = reference(agent, inputs)
    algorithm = PPO(agent, **SETTINGS, update="flat")
    adam = algorithm._adam.prepare()
    algorithm._adam.gather()
    flat = FlatUpdate(known_groups(agent, "", ""), (), adam)
    flat.load(inputs)
    flat.loss_of_batch(algorithm._coefficients())
    flat.backward()
    assert_close_to_largest(adam.gradients, expected, 2e-6)


def test_what_is_not_finite_reaches_the_loss_of_compiled_networks():
    agent = agent_of("categorical", (32, 32), activation="relu")
    inputs = inputs_of(agent, 60, seed=0)
    inputs.agent["observation"][50, 0] = math.nan
    algorithm = PPO(agent, **SETTINGS, update="flat")
    adam = algorithm._adam.prepare()
    algorithm._adam.gather()
    flat = FlatUpdate(known_groups(agent, "", ""), (), adam)
    flat.load(inputs)
    loss, _ = flat.loss_of_batch(algorithm._coefficients())
    assert math.isnan(loss)
