from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from parllel.buffers import NamedTuple
from parllel.replays import Replay, Transitions
from parllel.torch.algos.batch_tensors import BatchTensors
from parllel.torch.algos.off_policy_learner import OffPolicyLearner


class NoReplay(Replay):
    n_stored = 0

    def add(self, samples, *, source=None):
        raise NotImplementedError

    sample = state = load_state = add


class Prioritized(NoReplay):
    def update_priorities(self, errors):
        self.errors = errors


def batch_of(n=4, seed=0, replay=None, dtype=np.float32):
    rng = np.random.default_rng(seed)

    def numbers(*shape):
        return rng.normal(size=shape).astype(dtype)

    return Transitions(
        replay=replay or NoReplay(),
        observation=NamedTuple(a=numbers(n, 3), b=numbers(n, 2, 2)),
        action=numbers(n, 2),
        reward=numbers(n),
        next_observation=NamedTuple(a=numbers(n, 3), b=numbers(n, 2, 2)),
        discount=np.full(n, 0.9, dtype),
        weight=np.ones(n, dtype),
    )


class Agent:
    device = torch.device("cpu")

    def __init__(self, dtype=torch.float32):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(3, 5, bias=False), nn.BatchNorm1d(5), nn.Linear(5, 1)
        ).to(dtype)
        self.modes = []

    def train_mode(self):
        self.modes.append("train")
        self.model.train()

    def sample_mode(self):
        self.modes.append("sample")
        self.model.eval()


class Regression(OffPolicyLearner):
    """Fits the rewards from one part of the observation."""

    def __init__(self, agent, flat=True):
        super().__init__(agent, seed=3)
        self.add_optimizer("model", agent.model.parameters(), 1e-2, flat=flat)
        self.add_target("model", agent.model)

    def update(self, batch):
        error = self.agent.model(batch.observation.a).squeeze(-1) - batch.reward
        loss = error.square().mean()
        norm = self.step("model", loss)
        self.targets["model"].update(0.1)
        return {"loss": loss.detach(), "gradient_norm": norm}


def parameters(module):
    return [p.detach().clone() for p in module.parameters()]


@pytest.mark.parametrize("flat", [True, False])
def test_a_step_is_adam_and_the_target_follows(flat):
    agent, batch = Agent(), batch_of()
    plain, target = copy.deepcopy(agent.model), copy.deepcopy(agent.model)
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2)
    algorithm = Regression(agent, flat)
    algorithm.prepare()
    for _ in range(5):
        found = algorithm.optimize_agent(0, batch)
        plain.train()
        loss = (
            (plain(torch.from_numpy(batch.observation.a))[:, 0] - torch.from_numpy(batch.reward))
            .square()
            .mean()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for old, new in zip(target.parameters(), plain.parameters(), strict=True):
            old.data.mul_(0.9).add_(new.data, alpha=0.1)
        torch.testing.assert_close(found["loss"], loss.detach())
    for one, other in zip(parameters(agent.model), parameters(plain), strict=True):
        torch.testing.assert_close(one, other)
    followed = algorithm.targets["model"].module
    for one, other in zip(parameters(followed), parameters(target), strict=True):
        torch.testing.assert_close(one, other)
    assert agent.modes[-2:] == ["train", "sample"]
    # Statistics are not averaged, but copied.
    torch.testing.assert_close(followed[1].running_mean, agent.model[1].running_mean)
    assert algorithm.targets["model"].flat is not None
    assert algorithm.optimizers["model"].is_flat == flat


def test_tau_of_one_copies_exactly():
    algorithm = Regression(Agent())
    algorithm.optimize_agent(0, batch_of())
    algorithm.targets["model"].update(1.0)
    pairs = zip(
        parameters(algorithm.agent.model),
        parameters(algorithm.targets["model"].module),
        strict=True,
    )
    assert all(torch.equal(one, other) for one, other in pairs)


def test_other_dtypes_are_updated_too():
    algorithm = Regression(Agent(torch.float64))
    algorithm.optimize_agent(0, batch_of(dtype=np.float64))
    target = algorithm.targets["model"]
    assert target.flat is None
    before = parameters(target.module)
    target.update(0.5)
    for old, new, source in zip(
        before, target.module.parameters(), algorithm.agent.model.parameters(), strict=True
    ):
        torch.testing.assert_close(new.detach(), 0.5 * (old + source.detach()))


def test_resumed_equals_uninterrupted():
    algorithm = Regression(Agent())
    for seed in range(3):
        algorithm.optimize_agent(0, batch_of(seed=seed))
    other = Regression(Agent())
    other.agent.model.load_state_dict(algorithm.agent.model.state_dict())
    other.load_state(copy.deepcopy(algorithm.state()))
    for one in (algorithm, other):
        one.optimize_agent(0, batch_of(seed=7))
    assert other.n_updates == 4
    for module in ("model",):
        pairs = zip(
            parameters(algorithm.targets[module].module),
            parameters(other.targets[module].module),
            strict=True,
        )
        assert all(torch.equal(one, two) for one, two in pairs)
    assert torch.equal(
        torch.rand(2, generator=algorithm.generator), torch.rand(2, generator=other.generator)
    )


def test_a_state_of_another_algorithm_is_refused():
    algorithm = Regression(Agent())
    state = algorithm.state()
    with pytest.raises(ValueError, match=r"targets: expected \['model'\], got \['other'\]"):
        algorithm.load_state({**state, "targets": {"other": {}}})


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_what_is_not_finite_changes_no_parameter(where, flat):
    algorithm = Regression(Agent(), flat)
    before = parameters(algorithm.agent.model)
    batch = batch_of()
    if where == "loss":
        batch.reward[1] = np.nan
    else:
        algorithm.agent.model[0].weight.register_hook(lambda g: g * np.inf)
    with pytest.raises(FloatingPointError, match=f"Regression: model: the .*{where} is not finite"):
        algorithm.optimize_agent(0, batch)
    pairs = zip(before, parameters(algorithm.agent.model), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert algorithm.agent.modes[-1] == "sample"


def test_tensors_share_the_memory_of_the_batch_and_are_made_once():
    tensors, batch = BatchTensors(torch.device("cpu")), batch_of()
    first = tensors.of(batch)
    batch.reward[:] = 7
    assert tensors.of(batch) is first
    assert (first.reward == 7).all()
    assert first.observation.b.data_ptr() == batch.observation.b.ctypes.data
    assert first.replay is batch.replay
    other = batch_of(seed=1)
    assert tensors.of(other).reward.data_ptr() == other.reward.ctypes.data


def test_batches_reach_other_devices_in_one_transfer():
    # "meta" computes nothing, but everything that leads to the copy runs.
    tensors, batch = BatchTensors(torch.device("meta")), batch_of()
    found = tensors.of(batch)
    assert found.observation.b.shape == (4, 2, 2)
    assert found.observation.b.device.type == "meta"
    assert found.reward.dtype == torch.float32


def test_errors_are_wanted_by_replays_with_priorities():
    algorithm = Regression(Agent())
    assert not algorithm.wants_errors(batch_of())
    assert algorithm.wants_errors(batch_of(replay=Prioritized()))
