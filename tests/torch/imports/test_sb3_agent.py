"""Agents from files of Stable-Baselines3 act as Stable-Baselines3 does."""

from __future__ import annotations

import io
import json
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from parllel.torch import TorchHandler, sb3_agent

sb3 = pytest.importorskip("stable_baselines3")

VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float32)
BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([3, 0.5], np.float32))
CASES = {
    "ppo": ("PPO", VECTOR, spaces.Discrete(3), {}),
    "a2c_box": ("A2C", VECTOR, BOX, {"net_arch": [8]}),
    "ppo_relu": ("PPO", VECTOR, spaces.MultiDiscrete([2, 3]), {"activation_fn": torch.nn.ReLU}),
    "ppo_states": ("PPO", spaces.Discrete(6), spaces.Discrete(3), {}),
    "dqn": ("DQN", VECTOR, spaces.Discrete(4), {"net_arch": [16, 8]}),
    "sac": ("SAC", VECTOR, BOX, {"net_arch": [16]}),
    "td3": ("TD3", spaces.Box(-1, 1, (2, 3), np.float32), BOX, {}),
}


class Env(gym.Env):
    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a model of SB3 whose weights are shaken, and its file."""
    base = tmp_path_factory.mktemp("sb3")

    def saved(name, **more):
        algorithm, observation_space, action_space, settings = CASES[name]
        small = {"buffer_size": 10} if algorithm in ("DQN", "SAC", "TD3") else {}
        env = Env(observation_space, action_space)
        model = getattr(sb3, algorithm)(
            "MlpPolicy", env, policy_kwargs=settings or None, seed=0, device="cpu", **small, **more
        )
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.policy.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        path = base / f"{name}.zip"
        model.save(path)
        return model, path

    return saved


@pytest.mark.parametrize("name", CASES)
def test_actions_are_those_of_sb3(saved, name, monkeypatch):
    model, path = saved(name)
    _, observation_space, action_space, _ = CASES[name]
    observations = np.stack([observation_space.sample() for _ in range(200)])
    expected = model.predict(observations, deterministic=True)[0]

    def refuse(*args, **settings):
        raise AssertionError("a pickle was read")

    monkeypatch.setattr("cloudpickle.loads", refuse)
    monkeypatch.setattr("pickle.loads", refuse)
    agent = sb3_agent(path, observation_space, action_space, seed=0)
    agent.eval_mode()
    actions = TorchHandler(agent, threads=1).act(observations, slice(0, 200))
    if isinstance(action_space, spaces.Box):
        # As a cage would.
        actions = np.clip(actions, action_space.low, action_space.high)
        np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(actions, expected)
    assert len(np.unique(expected, axis=0)) > 1


def test_values_are_those_of_sb3(saved):
    model, path = saved("sac")
    agent = sb3_agent(path, VECTOR, BOX, seed=0)
    observations, unit = torch.randn(20, 5), torch.rand(20, 2) * 2 - 1
    with torch.no_grad():
        expected = model.critic(observations, unit)
        found = agent.critics(observations, unit)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.squeeze(-1))
    model, path = saved("a2c_box")
    agent = sb3_agent(path, VECTOR, BOX, seed=0)
    with torch.no_grad():
        expected = model.policy.predict_values(observations).squeeze(-1)
        (_, log_std), value = agent.outputs(observations)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(log_std, model.policy.log_std)


def test_what_is_not_supported_is_named(saved, tmp_path):
    _, path = saved("ppo")
    with pytest.raises(ValueError, match="expected 4 inputs for the given spaces, got 5"):
        sb3_agent(path, spaces.Box(-1, 1, (4,)), spaces.Discrete(3), seed=0)
    with pytest.raises(ValueError, match=r"ppo\.zip: .* for the given spaces, got \(3, 64\)"):
        sb3_agent(path, VECTOR, spaces.MultiDiscrete([2, 3]), seed=0)
    _, path = saved("td3")
    with pytest.raises(
        ValueError, match=r"critic\.qf0: expected 7 inputs for the given spaces, got 8"
    ):
        sb3_agent(path, CASES["td3"][1], spaces.Box(-1, 1, (1,)), seed=0)
    with pytest.raises(ValueError, match=r"observations of Dict.* are not supported"):
        sb3_agent(path, spaces.Dict({"a": VECTOR}), spaces.Discrete(3), seed=0)
    with pytest.raises(FileNotFoundError, match=r"none\.zip"):
        sb3_agent(tmp_path / "none.zip", VECTOR, BOX, seed=0)
    (tmp_path / "no.zip").write_text("no zip")
    with pytest.raises(ValueError, match=r"no\.zip: expected a model that Stable-Baselines3 saved"):
        sb3_agent(tmp_path / "no.zip", VECTOR, BOX, seed=0)
    _, path = saved("a2c_box", use_sde=True)
    with pytest.raises(ValueError, match="explores by state-dependent noise"):
        sb3_agent(path, VECTOR, BOX, seed=0)


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def changed(path, to, data=None, parameters=None):
    """Copy a file with other data or parameters."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(to, "w") as out:
        held = json.loads(archive.read("data"))
        out.writestr("data", json.dumps({**held, **(data or {})}))
        content = io.BytesIO()
        held = torch.load(io.BytesIO(archive.read("policy.pth")), weights_only=True)
        torch.save({**held, **(parameters or {})}, content)
        out.writestr("policy.pth", content.getvalue())
    return to


def test_files_that_need_pickle_or_hold_other_networks(saved, tmp_path, capsys):
    _, path = saved("ppo")
    spaces_ = (VECTOR, spaces.Discrete(3))
    file = changed(path, tmp_path / "a.zip", parameters={"evil": Evil()})
    with pytest.raises(ValueError, match=r"a\.zip: expected only parameters"):
        sb3_agent(file, *spaces_, seed=0)
    assert "executed" not in capsys.readouterr().out
    extra = {"features_extractor.cnn.0.weight": torch.zeros(1)}
    file = changed(path, tmp_path / "b.zip", parameters=extra)
    with pytest.raises(ValueError, match=r"parameter features_extractor\.cnn\.0\.weight has no"):
        sb3_agent(file, *spaces_, seed=0)
    elu = {"policy_kwargs": {"activation_fn": "<class 'torch.nn.modules.activation.ELU'>"}}
    file = changed(path, tmp_path / "c.zip", data=elu)
    with pytest.raises(ValueError, match="its activation is ELU, not one of"):
        sb3_agent(file, *spaces_, seed=0)
