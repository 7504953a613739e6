"""Agents from files of Stable-Baselines3 act as Stable-Baselines3 does."""

from __future__ import annotations

import copy
import io
import json
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from parllel import Seeds
from parllel.cages.spaces import Spaces
from parllel.policies.run_policy import RunPolicy
from parllel.torch import TorchHandler, export_policy, sb3_agent
from parllel.transforms.final_chain import FinalTransforms

sb3 = pytest.importorskip("stable_baselines3")
policies = pytest.importorskip("stable_baselines3.common.policies")
extractors = pytest.importorskip("stable_baselines3.common.torch_layers")

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
    "ppo_linear": ("PPO", VECTOR, spaces.Discrete(3), {"net_arch": []}),
}


def images(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


SMALL = {"features_extractor_kwargs": {"features_dim": 32}}
FLOATS = spaces.Box(-1, 1, (3, 36, 40), np.float32)
# Of CnnPolicy. SB3 moves channels that are last to the front.
IMAGE_CASES = {
    "images_ppo": ("PPO", images(4, 84, 84), spaces.Discrete(4), {}),
    "images_ppo_hidden": (
        "PPO",
        images(1, 36, 40),
        spaces.MultiDiscrete([2, 3]),
        {**SMALL, "net_arch": [16], "activation_fn": torch.nn.ReLU},
    ),
    "images_a2c": ("A2C", images(3, 40, 36), BOX, {}),
    "images_last": ("PPO", images(36, 48, 3), spaces.Discrete(4), SMALL),
    "images_scaled": ("PPO", FLOATS, spaces.Discrete(4), {**SMALL, "normalize_images": False}),
    "images_dqn": ("DQN", images(4, 84, 84), spaces.Discrete(4), {}),
    "images_dqn_hidden": ("DQN", images(36, 36, 6), spaces.Discrete(3), {"net_arch": [16]}),
    "images_sac": ("SAC", images(4, 36, 36), BOX, {"net_arch": [16]}),
    "images_sac_shared": ("SAC", images(4, 36, 36), BOX, {"share_features_extractor": True}),
    "images_td3": ("TD3", images(36, 36, 1), BOX, {**SMALL, "net_arch": [16]}),
}
CASES |= IMAGE_CASES


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

    def saved(name, policy=None, settings=None, **more):
        algorithm, observation_space, action_space, own = CASES[name]
        # SB3 writes into what it is given.
        settings = copy.deepcopy({**own, **(settings or {})})
        policy = policy or ("CnnPolicy" if name in IMAGE_CASES else "MlpPolicy")
        small = {"buffer_size": 10} if algorithm in ("DQN", "SAC", "TD3") else {}
        env = Env(observation_space, action_space)
        model = getattr(sb3, algorithm)(
            policy, env, policy_kwargs=settings or None, seed=0, device="cpu", **small, **more
        )
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.policy.parameters():
                scale = 0.06 if name in IMAGE_CASES else 0.3
                parameter += scale * torch.randn(parameter.shape, generator=generator)
        path = base / f"{name}.zip"
        model.save(path)
        return model, path

    return saved


def drawn(space, n=200):
    """Return observations; images are blocks of random brightness, which differ more than noise does."""
    space.seed(0)
    samples = np.stack([space.sample() for _ in range(n)])
    if len(space.shape) == 3:
        for axis, side in enumerate(space.shape, start=1):
            if side > 12:
                samples = samples.take(np.arange(side) // 12 * 12, axis)
    return samples


@pytest.mark.parametrize("name", CASES)
def test_actions_are_those_of_sb3(saved, name, monkeypatch):
    model, path = saved(name)
    _, observation_space, action_space, _ = CASES[name]
    observations = drawn(observation_space)
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
    with pytest.raises(TypeError, match=r"^sb3_agent: seed: expected an int, got Seeds\(0\)"):
        sb3_agent(path, VECTOR, BOX, seed=Seeds(0))
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
    extra = {"features_extractor.extra.weight": torch.zeros(1)}
    file = changed(path, tmp_path / "b.zip", parameters=extra)
    with pytest.raises(ValueError, match=r"parameter features_extractor\.extra\.weight has no"):
        sb3_agent(file, *spaces_, seed=0)
    elu = {"policy_kwargs": {"activation_fn": "<class 'torch.nn.modules.activation.ELU'>"}}
    file = changed(path, tmp_path / "c.zip", data=elu)
    with pytest.raises(ValueError, match="its activation is ELU, not one of"):
        sb3_agent(file, *spaces_, seed=0)


def test_values_of_images_are_those_of_sb3(saved):
    model, path = saved("images_sac")
    _, space, _, _ = CASES["images_sac"]
    agent = sb3_agent(path, space, BOX, seed=0)
    observations = torch.from_numpy(drawn(space, 20))
    unit = torch.rand(20, 2) * 2 - 1
    with torch.no_grad():
        expected = model.critic(observations, unit)
        found = agent.critics(observations, unit)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.squeeze(-1), rtol=1e-4, atol=1e-4)
    model, path = saved("images_ppo_hidden")
    _, space, actions, _ = CASES["images_ppo_hidden"]
    agent = sb3_agent(path, space, actions, seed=0)
    observations = torch.from_numpy(drawn(space, 20))
    with torch.no_grad():
        expected = model.policy.predict_values(observations).squeeze(-1)
        _, value = agent.outputs(observations)
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-4)


def test_channels_may_be_first_where_the_environment_had_them_last(saved):
    """The file has the space of VecTransposeImage; both spaces of the environment fit it."""
    model, path = saved("images_last")
    observations = drawn(images(3, 36, 48), 50)
    agent = sb3_agent(path, images(3, 36, 48), spaces.Discrete(4), seed=0)
    agent.eval_mode()
    actions = TorchHandler(agent, threads=1).act(observations, slice(0, 50))
    np.testing.assert_array_equal(actions, model.predict(observations, deterministic=True)[0])


@pytest.mark.parametrize(
    "given",
    [
        images(3, 48, 36),
        # As many features after the convolutions.
        images(3, 37, 48),
        images(48, 36, 3),
        images(36, 48),
        images(1, 36, 48, 3),
        spaces.Box(0, 1, (3, 36, 48), np.float32),
        spaces.Box(0, 255, (3, 36, 48), np.int16),
        VECTOR,
        spaces.Discrete(3),
    ],
)
def test_other_observations_than_the_images_of_a_file_are_refused(saved, given):
    _, path = saved("images_last")
    match = (
        r"images_last\.zip: .* expected images \[3, 36, 48\] of uint8, or .*, got observations of "
    )
    with pytest.raises(ValueError, match=match):
        sb3_agent(path, given, spaces.Discrete(4), seed=0)


def test_images_whose_layout_or_range_is_in_doubt_are_refused(saved, tmp_path):
    _, path = saved("images_last")
    other = spaces.Box(0, 254, (3, 36, 48), np.uint8)
    with pytest.raises(ValueError, match="expected images from 0 to 255, got observations of Box"):
        sb3_agent(path, other, spaces.Discrete(4), seed=0)
    # A CnnEncoder takes the shorter of the outer sides for the channels.
    described = {"_shape": [48, 40, 36], "dtype": "uint8"}
    file = changed(path, tmp_path / "many.zip", data={"observation_space": described})
    with pytest.raises(ValueError, match=r"expected images \[48, 40, 36\]"):
        sb3_agent(file, images(48, 40, 36), spaces.Discrete(4), seed=0)
    file = changed(path, tmp_path / "unknown.zip", data={"observation_space": {}})
    with pytest.raises(ValueError, match="does not state the shape and dtype of its images"):
        sb3_agent(file, images(3, 36, 48), spaces.Discrete(4), seed=0)


class OtherCnn(extractors.NatureCNN):
    """Its parameters have the names and shapes of NatureCNN's."""

    def forward(self, observations):
        return super().forward(observations).tanh()


class OtherPolicy(policies.ActorCriticCnnPolicy):
    def extract_features(self, obs, features_extractor=None):
        return super().extract_features(-obs, features_extractor)


def test_networks_of_images_that_are_not_supported_are_named(saved, tmp_path):
    _, space, actions, _ = CASES["images_ppo_hidden"]

    def refused(match, **settings):
        _, path = saved("images_ppo_hidden", **settings)
        with pytest.raises(ValueError, match=match):
            sb3_agent(path, space, actions, seed=0)

    refused("separate features extractors", settings={"share_features_extractor": False})
    refused("does not divide images of uint8 by 255", settings={"normalize_images": False})
    scaled = {"features_extractor_kwargs": {"features_dim": 32, "normalized_image": True}}
    refused("does not divide images of uint8 by 255", settings=scaled)
    refused(r"extractor is .*\.OtherCnn, not", settings={"features_extractor_class": OtherCnn})
    flat = {
        "features_extractor_class": extractors.FlattenExtractor,
        "features_extractor_kwargs": {},
    }
    refused("observations of Box.* are not supported", settings=flat)
    refused(r"its policy is a class of .*test_sb3_agent", policy=OtherPolicy)
    _, path = saved("images_ppo_hidden")
    # Numpy's bool is no JSON, so its text is stored.
    text = {"policy_kwargs": {"normalize_images": "False"}}
    file = changed(path, tmp_path / "text.zip", data=text)
    with pytest.raises(ValueError, match="does not divide images of uint8 by 255"):
        sb3_agent(file, space, actions, seed=0)


def test_other_convolutions_are_named(saved, tmp_path):
    _, space, actions, _ = CASES["images_dqn_hidden"]
    _, path = saved("images_dqn_hidden")
    prefix = "q_net.features_extractor.cnn"
    for name, shape, match in (
        ("0.weight", (32, 6, 4, 4), r"\(32, 6, 8, 8\) for the given spaces, got \(32, 6, 4, 4\)"),
        ("0.weight", (32, 6), rf"layer {prefix}\.0 is not a convolution"),
        ("6.weight", (64, 64, 3, 3), rf"parameter {prefix}\.6\.weight has no place"),
    ):
        parameters = {f"{prefix}.{name}": torch.zeros(shape)}
        file = changed(path, tmp_path / "other.zip", parameters=parameters)
        with pytest.raises(ValueError, match=match):
            sb3_agent(file, space, actions, seed=0)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["images_last", "images_scaled", "images_dqn_hidden"])
@pytest.mark.few(1)
def test_agents_of_images_can_be_exported(saved, name, tmp_path):
    model, path = saved(name)
    _, observation_space, action_space, _ = CASES[name]
    agent = sb3_agent(path, observation_space, action_space, seed=0)
    agent.eval_mode()
    both = Spaces(observation_space, action_space, name)
    zeros = [np.zeros((1, *space.shape), space.dtype) for space in CASES[name][1:3]]
    with RunPolicy(TorchHandler(agent), FinalTransforms([]), both, *zeros, n_columns=1) as policy:
        export_policy(policy, tmp_path / "policy.pt")
    observations = drawn(observation_space, 20)
    actions = torch.jit.load(tmp_path / "policy.pt")(torch.from_numpy(observations)).numpy()
    expected = model.predict(observations, deterministic=True)[0]
    np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)
