"""Gradients of SAC and TD3 that are written out: equal to autograd's, and refused where they would not be."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from off_policy_setup import (
    SAC_SETTINGS,
    Prioritized,
    batch_of,
    models,
    parameters,
    sac,
    sac_agent,
    td3,
    td3_agent,
)

from parllel.buffers import NamedTuple
from parllel.torch import SAC, CnnEncoder, SacAgent, TreeEncoder
from parllel.torch.models.tree_encoder import FlatEncoder

MAKERS = {"sac": (sac, sac_agent), "td3": (td3, td3_agent)}
NETWORKS = {
    "twins": {},
    "wide": {"hidden": (64, 96)},
    "one layer": {"hidden": (16,)},
    "linear": {"hidden": ()},
    "deep tanh": {"hidden": (8, 12, 10), "activation": "tanh"},
    "one critic": {"n_critics": 1},
    "three critics": {"n_critics": 3},
}


def pair(kind, **options):
    make, make_agent = MAKERS[kind]
    flat, autograd = (
        make(make_agent(**options), update=update, learning_rate=1e-3)
        for update in ("flat", "autograd")
    )
    return flat, autograd


def networks(algorithm):
    agent = algorithm.agent
    targets = [target.module for target in algorithm.targets.values()]
    return [p for module in (agent.policy, agent.critics, *targets) for p in parameters(module)]


def largest_difference(found, expected):
    """The largest difference, relative to the largest entry."""
    pairs = list(zip(found, expected, strict=True))
    scale = max(float(two.abs().max()) for _, two in pairs)
    return max(float((one - two).abs().max()) for one, two in pairs) / scale


@pytest.mark.parametrize("networks_of", list(NETWORKS), ids=lambda name: name.replace(" ", "_"))
@pytest.mark.parametrize("kind", list(MAKERS))
def test_gradients_equal_autograd(kind, networks_of, monkeypatch):
    flat, autograd = pair(kind, **NETWORKS[networks_of])
    for number in (1, 2):
        batch = batch_of(64, seed=number)
        flat.prepare()
        before = copy.deepcopy(flat.agent.state()), copy.deepcopy(flat.state())
        found = {}
        real = {name: adam.prepare() for name, adam in flat.optimizers.items()}
        # No step is taken, so that all gradients are those of the same parameters.
        for name, adam in real.items():
            monkeypatch.setattr(
                adam,
                "step",
                lambda _, name=name, adam=adam, found=found: found.__setitem__(
                    name, adam.gradients.copy()
                ),
            )
        flat.optimize_agent(0, batch)
        autograd.agent.load_state(before[0])
        autograd.load_state(before[1])
        expected = {}

        def take(name, loss, expected=expected):
            adam = autograd.optimizers[name]
            expected[name] = torch.cat(
                [g.reshape(-1) for g in torch.autograd.grad(loss, adam.parameters)]
            ).numpy()
            return 0.0

        autograd.step = take
        autograd.optimize_agent(0, batch)
        assert flat.update_method == "flat"
        assert autograd.update_method == "autograd"
        assert sorted(found) == sorted(expected)
        for name, gradient in expected.items():
            assert np.abs(found[name] - gradient).max() < 1e-6 * np.abs(gradient).max(), name
        monkeypatch.undo()


# The large one has products that are computed by another function. Some of its gradients are so small that
# rounding decides about them; Adam makes steps of them that are as large as others. After some thirty
# updates, the two ways are as far apart as two seeds.
@pytest.mark.parametrize(
    ("units", "n", "n_updates", "most"), [(32, 64, 80, 1e-6), (256, 256, 20, 5e-5)]
)
@pytest.mark.parametrize("kind", list(MAKERS))
def test_many_updates_equal_autograd(kind, units, n, n_updates, most):
    flat, autograd = pair(kind, hidden=(units, units))
    for seed in range(n_updates):
        batch = batch_of(n, seed=seed)
        found = flat.optimize_agent(0, batch)
        expected = autograd.optimize_agent(0, batch)
        assert sorted(found) == sorted(expected)
        for name, value in expected.items():
            assert float(found[name]) == pytest.approx(float(value), rel=2e-4, abs=2e-5), name
    assert flat.update_method == "flat"
    assert largest_difference(networks(flat), networks(autograd)) < most
    if kind == "sac":
        torch.testing.assert_close(
            flat.log_temperature, autograd.log_temperature, rtol=1e-5, atol=1e-6
        )


def test_a_fixed_temperature():
    flat = sac(update="flat", learn_temperature=False)
    found = flat.optimize_agent(0, batch_of())
    assert "temperature_loss" not in found
    assert found["temperature"] == pytest.approx(0.7)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_priorities_are_the_same(kind):
    flat, autograd = pair(kind)
    errors = []
    for algorithm in (flat, autograd):
        replay = Prioritized()
        algorithm.optimize_agent(0, batch_of(replay=replay))
        errors.append(replay.errors.copy())
    np.testing.assert_allclose(*errors, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_batches_may_change_in_size(kind):
    flat, autograd = pair(kind)
    for n in (8, 40, 8, 1):
        for algorithm in (flat, autograd):
            algorithm.optimize_agent(0, batch_of(n, seed=n))
    assert largest_difference(networks(flat), networks(autograd)) < 1e-5


@pytest.mark.parametrize("kind", list(MAKERS))
def test_checkpoints_change_the_way(kind):
    flat, autograd = pair(kind)
    other = MAKERS[kind][0](MAKERS[kind][1](), update="autograd", learning_rate=1e-3)
    for algorithm in (flat, autograd):
        for seed in range(3):
            algorithm.optimize_agent(0, batch_of(seed=seed))
    other.agent.load_state(copy.deepcopy(flat.agent.state()))
    other.load_state(copy.deepcopy(flat.state()))
    for algorithm in (other, autograd):
        algorithm.optimize_agent(0, batch_of(seed=9))
    assert largest_difference(networks(other), networks(autograd)) < 1e-5


@pytest.mark.parametrize("kind", list(MAKERS))
def test_encoders_without_parameters(kind):
    def trunks():
        return [TreeEncoder({"b": FlatEncoder((2, 2)), "a": FlatEncoder((3,))}) for _ in range(2)]

    found = []
    for update in ("flat", "autograd"):
        algorithm = MAKERS[kind][0](MAKERS[kind][1](trunks=trunks()), update=update)
        for seed in range(2):
            batch = batch_of(seed=seed)
            for name in ("observation", "next_observation"):
                whole = getattr(batch, name)
                square = np.repeat(whole[:, :2, None], 2, axis=2)
                setattr(batch, name, NamedTuple(a=whole, b=square))
            algorithm.optimize_agent(0, batch)
        found.append(networks(algorithm))
    assert largest_difference(*found) < 1e-5


@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_what_is_not_finite_changes_nothing(kind, what):
    algorithm = MAKERS[kind][0](update="flat")
    batch = batch_of()
    if what == "loss":
        batch.reward[0] = np.nan
    else:
        batch.observation[0] = 1e38
        batch.reward[:] = 1e30
    before = networks(algorithm)
    with pytest.raises(
        FloatingPointError, match=r"critics: the (loss|norm of the gradient) is not"
    ):
        algorithm.optimize_agent(0, batch)
    assert all(torch.equal(one, two) for one, two in zip(before, networks(algorithm), strict=True))


@pytest.mark.parametrize("kind", list(MAKERS))
def test_steps_after_the_end_take_nothing_from_what_follows(kind):
    algorithm, batch = MAKERS[kind][0](update="flat"), batch_of()
    batch.discount[:3] = 0
    batch.next_observation[:3] = np.nan
    for value in algorithm.optimize_agent(0, batch).values():
        assert np.isfinite(float(value))


def hooked():
    agent = sac_agent()
    agent.critics.networks[1].layers[0].register_forward_hook(lambda *_: None)
    return agent


def images():
    generator = torch.Generator().manual_seed(0)
    from parllel.torch.models.cnn_encoder import CONVOLUTIONS_SMALL

    trunks = [CnnEncoder((6, 6), CONVOLUTIONS_SMALL, generator=generator) for _ in range(2)]
    return sac_agent(trunks=trunks)


class OwnAgent(SacAgent):
    pass


class OwnSac(SAC):
    def policy_loss(self, batch):
        return super().policy_loss(batch)


def own_agent():
    from off_policy_setup import BOX

    return OwnAgent(*models(4), BOX, seed=0)


def frozen():
    agent = sac_agent()
    agent.policy.network.layers[0].weight.requires_grad_(False)
    return agent


CASES = {
    "hooks": (hooked, SAC, "expected a module without hooks"),
    "images": (images, SAC, "agent.policy.encoder: expected FlatEncoder or"),
    "agent": (own_agent, SAC, "agent: expected SacAgent or TD3Agent itself, got OwnAgent"),
    "algorithm": (sac_agent, OwnSac, "policy_loss is overridden, but would not be called"),
    "frozen": (frozen, SAC, "PyTorch's optimizer is in use"),
}


@pytest.mark.parametrize("case", list(CASES))
def test_others_are_learned_by_autograd_or_refused(case):
    make_agent, kind, match = CASES[case]
    batch = batch_of()
    if case == "images":
        batch.observation = np.zeros((32, 6, 6), np.uint8)
        batch.next_observation = np.zeros((32, 6, 6), np.uint8)
    algorithm = kind(make_agent(), **SAC_SETTINGS, update="flat")
    with pytest.raises(TypeError, match=match):
        algorithm.optimize_agent(0, batch)
    if case == "frozen":
        return
    algorithm = kind(make_agent(), **SAC_SETTINGS, update="auto")
    algorithm.optimize_agent(0, batch)
    assert algorithm.update_method == "flat parameters"


def test_hooks_are_noticed_before_the_next_batch():
    algorithm = sac()
    algorithm.optimize_agent(0, batch_of())
    assert algorithm.update_method == "flat"
    calls = []
    algorithm.agent.policy.register_forward_hook(lambda *_: calls.append(1))
    algorithm.before_sampling(0)
    algorithm.optimize_agent(0, batch_of())
    assert algorithm.update_method == "flat parameters"
    assert calls
