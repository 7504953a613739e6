"""PPO in JAX computes what PPO in PyTorch does: gradients, updates, diagnostics, minibatches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from jax_setup import SETTINGS, agent_of, batch_of, parameters, ppo, torch_twin

from parllel import torch as parllel_torch
from parllel.agents import load_weights

# With gradients that are written out in PPO's own code, autograd shows an error of either.
AUTOGRAD = {"update": "autograd"}


def gradients_of(algorithm):
    """Return the gradients of the only update so far: Adam's first moment is a tenth of them."""
    moments = algorithm.state()["optimizer"]
    names = [name.removeprefix("mu.") for name in moments if name.startswith("mu.")]
    return {name: moments[f"mu.{name}"] / 0.1 for name in names}


@pytest.mark.parametrize(
    ("head", "model", "value_clip", "weighted"),
    [
        ("categorical", {}, None, False),
        ("categorical", {"activation": "relu"}, 0.2, True),
        ("categorical", {"trunk": (7,)}, 0.2, False),
        ("gaussian", {}, 0.2, True),
        ("gaussian", {"activation": "relu"}, None, False),
        ("gaussian", {"trunk": (7,)}, None, True),
    ],
)
@pytest.mark.few(3)
def test_gradients_are_autograds(head, model, value_clip, weighted):
    shared = {"shared_sizes": model["trunk"]} if "trunk" in model else model
    agent = agent_of(head, **shared)
    samples = batch_of(agent, weighted=weighted)
    twin = torch_twin(agent, **model)
    twin.model.double()
    settings = {"value_clip": value_clip, "clip_grad_norm": None, "entropy_loss_coeff": 0.1}
    theirs = parllel_torch.PPO(twin, **{**SETTINGS, **settings}, **AUTOGRAD)
    inputs = theirs.construct_agent_inputs(samples)
    inputs.agent["observation"] = inputs.agent["observation"].double()
    loss, terms = theirs.loss(inputs)
    loss.backward()
    ours = ppo(agent, epochs=1, minibatches=1, **settings)
    diagnostics = ours.optimize_agent(48, samples)
    found = gradients_of(ours)
    wanted = {name: p.grad.numpy() for name, p in twin.model.named_parameters()}
    assert found.keys() == wanted.keys()
    largest = max(abs(array).max() for array in wanted.values())
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=2e-6 * largest, err_msg=name)
    assert {name: diagnostics[name] for name in terms} == pytest.approx(
        {name: term.item() for name, term in terms.items()}, rel=1e-4, abs=1e-6
    )
    norm = np.sqrt(sum((array**2).sum() for array in wanted.values()))
    assert diagnostics["gradient_norm"] == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize(
    ("head", "masked", "settings"),
    [
        ("categorical", False, {"learning_rate_anneal_steps": 120}),
        ("categorical", True, {}),
        ("categorical", False, {"kl_limit": 0.055, "epochs": 4}),
        ("categorical", False, {"entropy_loss_coeff": 0.0, "clip_grad_norm": 0.05}),
        ("gaussian", False, {"minibatches": 5, "epochs": 3}),
        ("gaussian", True, {"clip_grad_norm": None, "value_clip": 0.2}),
        ("gaussian", True, {"kl_limit": 0.055, "epochs": 4, "minibatches": 5}),
    ],
)
@pytest.mark.few(4)
def test_batches_are_learned_as_by_torch(head, masked, settings):
    agent = agent_of(head)
    twin = torch_twin(agent)
    ours, theirs = ppo(agent, **settings), parllel_torch.PPO(twin, **{**SETTINGS, **settings})
    stopped = []
    for i in range(3):
        valid = np.random.default_rng(i).random((8, 6)) < 0.7 if masked else None
        samples = batch_of(agent, seed=i, valid=valid)
        elapsed = 48 * (i + 1)
        found, wanted = (one.optimize_agent(elapsed, samples) for one in (ours, theirs))
        assert found.keys() == wanted.keys()
        assert dict(found) == pytest.approx(dict(wanted), rel=2e-3, abs=2e-5)
        stopped.append(found["early_stop"])
        for name, array in twin.state()["model"].items():
            np.testing.assert_allclose(parameters(agent)[name], array, atol=5e-5, err_msg=name)
        # Rounding must not add up over batches, or the next one would begin with other policies.
        load_weights(twin, {"model": parameters(agent)})
    if "kl_limit" in settings:
        # Both kinds of batches, and the shuffles of a batch that ended early were not used up.
        assert 1 in stopped


def test_each_loads_the_weights_of_the_other():
    agent = agent_of("gaussian", shared_sizes=(5,), activation="relu")
    twin = torch_twin(agent, trunk=(5,), activation="relu")
    observation = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    agent.eval_mode()
    twin.eval_mode()
    action, info = agent.step(observation)
    expected, of_twin = twin.step(torch.from_numpy(observation))
    np.testing.assert_allclose(action, expected, atol=1e-6)
    np.testing.assert_allclose(info.value, of_twin.value, atol=1e-6)
    np.testing.assert_allclose(info.log_prob, of_twin.log_prob, rtol=1e-6)
    with torch.no_grad():
        for parameter in twin.model.parameters():
            parameter.mul_(1.5)
    load_weights(agent, {"model": twin.state()["model"]})
    np.testing.assert_allclose(
        agent.value(observation), twin.value(torch.from_numpy(observation)), atol=1e-5
    )


def test_initial_weights_follow_the_same_scheme():
    ours = parameters(agent_of("categorical", hidden=(16, 8), policy_gain=0.01))
    theirs = torch_twin(agent_of("categorical"), hidden=(8, 8)).state()["model"]
    assert ours.keys() == theirs.keys()
    gains = {"policy.layers.2": 0.01, "critic.layers.2": 1.0}
    for name, array in ours.items():
        layer, _, kind = name.rpartition(".")
        if kind == "bias":
            assert not array.any()
            continue
        gain = gains.get(layer, np.sqrt(2))
        small = array if array.shape[0] <= array.shape[1] else array.T
        np.testing.assert_allclose(
            small @ small.T, gain**2 * np.eye(len(small)), atol=1e-6, err_msg=name
        )


def test_agents_of_the_other_library_are_refused():
    agent = agent_of("categorical")
    said = r"^PPO: agent: expected an agent with a PyTorch model, got a parllel\.jax\.pg_agent\.PgAgent"
    with pytest.raises(TypeError, match=said):
        parllel_torch.PPO(agent, **SETTINGS)
    with pytest.raises(
        TypeError, match=r"expected a PgAgent of parllel\.jax, got a parllel\.torch"
    ):
        ppo(torch_twin(agent))
