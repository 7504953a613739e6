"""Agents from CleanRL's files act as its modules, which are repeated here in their own words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from parllel import Seeds
from parllel.torch import TorchHandler, cleanrl_agent

VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float32)
BOX = spaces.Box(-3, 3, (2,), np.float32)


def network(activation, *sizes):
    layers = [nn.Linear(5, 16), activation(), nn.Linear(16, sizes[0]), activation()]
    return nn.Sequential(*layers, nn.Linear(sizes[0], sizes[1]))


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = network(nn.ReLU, 8, 4)


class PpoAgent(nn.Module):
    def __init__(self, n_actions):
        super().__init__()
        self.critic = network(nn.Tanh, 16, 1)
        self.actor = network(nn.Tanh, 16, n_actions)


class ContinuousAgent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = network(nn.Tanh, 16, 1)
        self.actor_mean = network(nn.Tanh, 16, 2)
        self.actor_logstd = nn.Parameter(torch.tensor([[-0.5, 0.25]]))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def actions_of(path, action_space, observations):
    agent = cleanrl_agent(path, VECTOR, action_space, seed=0)
    agent.eval_mode()
    return agent, TorchHandler(agent, threads=1).act(observations, slice(0, len(observations)))


def test_actions_are_those_of_the_modules(tmp_path):
    path = tmp_path / "model.cleanrl_model"
    observations = 3 * np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    tensor = torch.from_numpy(observations)
    module = QNetwork()
    torch.save(module.state_dict(), path)
    _, actions = actions_of(path, spaces.Discrete(4), observations)
    expected = module.network(tensor).argmax(dim=1)
    np.testing.assert_array_equal(actions, expected.numpy())
    assert len(np.unique(actions)) > 1
    module = PpoAgent(3)
    torch.save(module.state_dict(), path)
    agent, actions = actions_of(path, spaces.Discrete(3), observations)
    np.testing.assert_array_equal(actions, module.actor(tensor).argmax(dim=1).numpy())
    torch.testing.assert_close(agent.value(tensor), module.critic(tensor).squeeze(-1))
    module = ContinuousAgent()
    torch.save(module.state_dict(), path)
    agent, actions = actions_of(path, BOX, observations)
    expected = module.actor_mean(tensor).detach().numpy()
    np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-6)
    assert agent.model.head.log_std.tolist() == [-0.5, 0.25]


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def test_what_is_not_supported_is_named(tmp_path, capsys):
    path = tmp_path / "model.cleanrl_model"

    def refused(value, match, action_space=BOX):
        torch.save(value, path)
        with pytest.raises(ValueError, match=match):
            cleanrl_agent(path, VECTOR, action_space, seed=0)

    state = QNetwork().state_dict()
    refused({**state, "evil": Evil()}, "expected only parameters, .* anything else needs pickle")
    assert "executed" not in capsys.readouterr().out
    refused((state, state), "expected the parameters of one module, got a tuple of other things")
    refused(state, r"actions of Box.*: expected a Discrete space from 0")
    refused(state, r"expected layers \(5, 8\) for the given spaces", spaces.Discrete(5))
    atoms = {**state, "atoms": torch.zeros(51)}
    refused(atoms, "parameter atoms has no place", spaces.Discrete(4))
    refused(PpoAgent(2).state_dict(), "it has no parameter actor_logstd")
    refused({"fc1.weight": torch.zeros(1)}, "it has no layers actor")
    path.write_text("nothing")
    with pytest.raises(ValueError, match=r"model\.cleanrl_model: "):
        cleanrl_agent(path, VECTOR, BOX, seed=0)
    with pytest.raises(FileNotFoundError, match="none"):
        cleanrl_agent(tmp_path / "none", VECTOR, BOX, seed=0)
    with pytest.raises(TypeError, match=r"^cleanrl_agent: seed: expected an int, got Seeds\(0\)"):
        cleanrl_agent(path, VECTOR, BOX, seed=Seeds(0))
