from __future__ import annotations

import numpy as np
import pytest
import torch
from ppo_setup import categorical, gaussian, parameters

from parllel import BatchSpec
from parllel.buffers import insert_field
from parllel.testing.resume_contract import assert_equal_states
from parllel.torch import (
    BehaviorCloning,
    CategoricalHead,
    IndependentAgents,
    RecurrentPgAgent,
    RecurrentPgModel,
)


@pytest.fixture(params=[categorical, gaussian])
def make(request):
    return request.param


def labelled(make_batch, agent, **options):
    """Return samples with the actions of an expert, which are a function of the observation."""
    samples, _ = make_batch(agent, dtype=np.float64, **options)
    like = samples.agent.action
    seen = np.asarray(samples.agent.observation)
    wanted = seen[..., :2] if like.dtype.kind == "f" else (seen[..., 0] > 0).astype(like.dtype)
    return insert_field(samples, "agent.expert_action", wanted)


def likelihood(agent, samples):
    """Return the mean log-likelihood of the labels."""
    seen = torch.tensor(np.asarray(samples.agent.observation)).flatten(0, 1)
    labels = torch.tensor(np.asarray(samples.agent.expert_action)).flatten(0, 1)
    with torch.no_grad():
        return agent.evaluate(seen, labels)[0].mean().item()


def test_labels_become_likely(make, make_batch):
    agent = make()
    samples = labelled(make_batch, agent)
    algorithm = BehaviorCloning(agent, learning_rate=1e-2, epochs=200, minibatches=2, seed=0)
    before = likelihood(agent, samples)
    diagnostics = algorithm.optimize_agent(48, samples)
    assert likelihood(agent, samples) > before + 0.5
    assert set(diagnostics) == {"loss", "entropy", "gradient_norm"}
    assert not agent.model.training


def test_the_first_update_is_adam_on_the_negative_log_likelihood(make_batch):
    agent, twin = categorical(), categorical()
    samples = labelled(make_batch, agent)
    algorithm = BehaviorCloning(agent, learning_rate=1e-2, epochs=1, minibatches=1, seed=0)
    before = parameters(agent)
    seen = torch.tensor(np.asarray(samples.agent.observation)).flatten(0, 1)
    labels = torch.tensor(np.asarray(samples.agent.expert_action)).flatten()
    loss = torch.nn.functional.cross_entropy(twin.model(seen)[0], labels)
    loss.backward()
    assert algorithm.optimize_agent(48, samples)["loss"] == pytest.approx(loss.item())
    for name, parameter in twin.model.named_parameters():
        moved = parameters(agent)[name] - before[name]
        if parameter.grad is None:  # what only values come from
            assert not moved.any()
        else:
            gradient = parameter.grad.numpy()
            expected = -1e-2 * gradient / (abs(gradient) + 1e-8)
            np.testing.assert_allclose(moved, expected, atol=1e-6)


@pytest.mark.parametrize("clip", [None, 0.1])
def test_parameters_are_those_of_torchs_adam_after_80_updates(make, make_batch, clip):
    found = []
    for by_torch in (False, True):
        agent = make(torch.float32)
        samples, _ = make_batch(agent)
        seen = np.asarray(samples.agent.observation)
        like = samples.agent.action
        wanted = seen[..., :2] if like.dtype.kind == "f" else (seen[..., 0] > 0).astype(like.dtype)
        samples = insert_field(samples, "agent.expert_action", wanted)
        settings = {"learning_rate": 1e-3, "epochs": 5, "minibatches": 4, "clip_grad_norm": clip}
        algorithm = BehaviorCloning(agent, **settings, seed=0)
        if by_torch:
            assert algorithm.optimizer.defaults["lr"] == 1e-3
        diagnostics = [algorithm.optimize_agent(48, samples) for _ in range(4)]
        found.append((parameters(agent), diagnostics, algorithm.update_method))
    (mine, some, method), (theirs, others, other) = found
    assert (method, other) == ("flat parameters", "autograd")
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-6, err_msg=name)
    for one, two in zip(some, others, strict=True):
        assert one == pytest.approx(two, rel=1e-4)


def test_steps_that_are_not_valid_do_not_count(make_batch):
    valid = np.random.default_rng(4).random((8, 6)) < 0.6
    results = []
    for garbage in (0, 2):
        agent = categorical()
        samples = labelled(make_batch, agent, valid=True)
        np.asarray(samples.env.valid)[:] = valid
        samples.agent.expert_action[~valid] = garbage
        algorithm = BehaviorCloning(agent, epochs=3, minibatches=4, seed=0)
        results.append((algorithm.optimize_agent(48, samples), agent.state()))
    assert_equal_states(*[state for _, state in results])
    assert results[0][0] == results[1][0]
    np.asarray(samples.env.valid)[:] = False
    with pytest.raises(ValueError, match=r"for each of 4 minibatches, got 0 valid steps"):
        algorithm.optimize_agent(48, samples)


def test_a_resumed_one_goes_on_as_it_would(make_batch):
    agents = [categorical(), categorical()]
    samples = labelled(make_batch, agents[0])
    first, second = (BehaviorCloning(agent, seed=seed) for seed, agent in enumerate(agents))
    first.optimize_agent(48, samples)
    second.load_state(first.state())
    agents[1].load_state(agents[0].state())
    assert first.optimize_agent(96, samples) == second.optimize_agent(96, samples)
    assert_equal_states(agents[0].state(), agents[1].state())


def test_numbers_that_are_not_finite_leave_the_parameters_as_they_were(make_batch):
    agent = gaussian()
    samples = labelled(make_batch, agent)
    samples.agent.expert_action[2, 3] = np.nan
    before = parameters(agent)
    with pytest.raises(
        FloatingPointError, match=r"BehaviorCloning: the loss is not finite: it is nan"
    ):
        BehaviorCloning(agent, minibatches=1, seed=0).optimize_agent(48, samples)
    assert all(np.array_equal(before[name], value) for name, value in parameters(agent).items())


def test_what_it_cannot_work_with_is_refused(make_batch):
    agent = categorical()
    samples, _ = make_batch(agent)
    with pytest.raises(
        ValueError, match=r"^BehaviorCloning needs the field agent\.expert_action, .* LabelActions"
    ):
        BehaviorCloning(agent, seed=0).optimize_agent(48, samples)
    with pytest.raises(ValueError, match="minibatches: expected at most 8, the steps of a batch"):
        BehaviorCloning(agent, minibatches=9, seed=0).check_batch_spec(BatchSpec(4, 2))
    for wrong in ({"epochs": 0}, {"learning_rate": -1.0}, {"clip_grad_norm": 0}, {"seed": -1}):
        with pytest.raises(ValueError, match=f"BehaviorCloning: {next(iter(wrong))}: expected"):
            BehaviorCloning(agent, **{"seed": 0, **wrong})
    model = RecurrentPgModel((4,), CategoricalHead(3), (), 8, cell="gru", seed=0)
    recurrent = RecurrentPgAgent(model, agent.distribution, seed=0)
    for other in (recurrent, IndependentAgents({"red": agent})):
        with pytest.raises(TypeError, match=f"no recurrent state, got a {type(other).__name__}"):
            BehaviorCloning(other, seed=0)
