"""Each compiled environment returns the bits of gymnasium's, also with other parameters."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_pairs import check_equal

from parllel.envs.compiled import classic_control

IDS = {
    "CartPole": "CartPole-v1",
    "Pendulum": "Pendulum-v1",
    "MountainCar": "MountainCar-v0",
    "MountainCarContinuous": "MountainCarContinuous-v0",
    "Acrobot": "Acrobot-v1",
}
# Parameters that gymnasium has as something else.
SPECIAL = {
    ("CartPole", "semi_implicit"): ("kinematics_integrator", lambda on: "other" if on else "euler"),
    ("CartPole", "sutton_barto_reward"): ("_sutton_barto_reward", bool),
    ("Acrobot", "nips"): ("book_or_nips", lambda on: "nips" if on else "book"),
}
N_STEPS = 300


def any_action(name, skill):
    """Return a function that chooses random actions, or with this probability one that leads to an end."""

    def choose(observation, rng):
        lucky = rng.random() < skill
        if name == "CartPole":
            return int(rng.integers(2))
        if name == "MountainCar":
            return 2 * int(observation[1] > 0) if lucky else int(rng.integers(3))
        if name == "Acrobot":
            return 2 * int(observation[4] < 0) if lucky else int(rng.integers(3))
        # Beyond the bounds too, where gymnasium clips.
        action = rng.uniform(-2.5, 2.5, 1).astype(np.float32)
        if name == "MountainCarContinuous" and lucky:
            action = np.where(observation[1:] < 0, -abs(action), abs(action))
        return action

    return choose


def pair(name, **parameters):
    """Return one of ours and one of gymnasium's, with the same parameters."""
    env = getattr(classic_control, name)(**parameters)
    # It would warn of actions beyond the bounds.
    reference = gym.make(IDS[name], disable_env_checker=True)
    for key, value in parameters.items():
        attribute, convert = SPECIAL.get((name, key), (key, float))
        assert hasattr(reference.unwrapped, attribute)
        setattr(reference.unwrapped, attribute, convert(value))
    return env, reference


@pytest.mark.parametrize("name", IDS)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), skill=st.sampled_from([0.0, 0.5, 0.9]))
@pytest.mark.few(2)
def test_it_returns_the_bits_of_gymnasium(name, seed, skill):
    check_equal(*pair(name), seed, any_action(name, skill), N_STEPS)


@pytest.mark.parametrize(
    ("name", "skill", "n_steps", "expected"),
    [
        ("CartPole", 0.0, 200, {"terminated"}),
        ("Pendulum", 0.0, 250, {"truncated"}),
        ("MountainCar", 0.0, 250, {"truncated"}),
        ("MountainCar", 0.95, 600, {"terminated"}),
        ("MountainCarContinuous", 0.0, 1100, {"truncated"}),
        ("MountainCarContinuous", 0.95, 600, {"terminated"}),
        ("Acrobot", 0.0, 600, {"truncated"}),
        ("Acrobot", 0.95, 600, {"terminated"}),
    ],
)
def test_ends_are_equal_too(name, skill, n_steps, expected):
    assert check_equal(*pair(name), 1, any_action(name, skill), n_steps) == expected


def test_cart_pole_is_truncated_when_it_could_go_on():
    def balance(observation, rng):
        return int(observation[2] + observation[3] > 0)

    assert "truncated" in check_equal(*pair("CartPole"), 0, balance, 1100)


@pytest.mark.parametrize("name", IDS)
@settings(max_examples=15)
@given(data=st.data(), seed=st.integers(0, 2**32))
@pytest.mark.few(2)
def test_parameters_have_the_effect_of_gymnasium_s_attributes(name, data, seed):
    defaults = getattr(classic_control, name).functions.parameters
    scales = st.floats(0.5, 1.5)

    def value(key, default):
        if isinstance(default, bool):
            return st.booleans()
        if key in ("goal_velocity", "torque_noise_max"):
            return st.sampled_from([0.0, 0.01, 0.02])
        return scales.map(lambda scale: default * scale)

    parameters = {
        key: data.draw(value(key, default), key)
        for key, default in defaults.items()
        if data.draw(st.booleans(), f"set {key}")
    }
    skill = data.draw(st.sampled_from([0.0, 0.9]), "skill")
    check_equal(*pair(name, **parameters), seed, any_action(name, skill), N_STEPS)


@pytest.mark.parametrize(
    ("name", "parameter", "value"), [("CartPole", "gravity", 3.0), ("Pendulum", "g", 3.0)]
)
def test_a_parameter_changes_what_happens(name, parameter, value):
    env, reference = pair(name)
    setattr(env, parameter, value)
    with pytest.raises(AssertionError, match="outcome"):
        check_equal(env, reference, 0, any_action(name, 0.0), 10)


@pytest.mark.parametrize("name", IDS)
def test_spaces_and_metadata_are_gymnasium_s(name):
    env, reference = pair(name)
    assert env.observation_space == reference.observation_space
    assert env.action_space == reference.action_space
    assert env.metadata["render_fps"] == reference.metadata["render_fps"]
    assert env.functions.max_episode_steps == reference.spec.max_episode_steps


@pytest.mark.parametrize("name", IDS)
@pytest.mark.few(2)
def test_pictures_show_what_moves(name):
    env = getattr(classic_control, name)(render_mode="rgb_array")
    env.reset(seed=0)
    env.action_space.seed(0)
    first = env.render()
    assert first.dtype == np.uint8
    assert first.shape[2] == 3
    assert 0 < np.mean(first != 255) < 0.5
    for _ in range(10):
        env.step(env.action_space.sample())
    assert (env.render() != first).any()


def test_the_first_observation_of_acrobot_is_computed_by_numpy_s_float32_functions():
    # The C library's would differ in one of a thousand.
    env, reference = pair("Acrobot")
    for seed in range(2000):
        ours, theirs = env.reset(seed=seed)[0], reference.reset(seed=seed)[0]
        assert ours.tobytes() == theirs.tobytes()
    angles = np.random.default_rng(0).uniform(-0.1, 0.1, 20_000).astype(np.float32)
    assert any(np.cos(angle) != np.float32(math.cos(angle)) for angle in angles)
