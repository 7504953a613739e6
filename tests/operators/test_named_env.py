from __future__ import annotations

import re

import gymnasium as gym
import pytest

from parllel.operators import env_named

FILE = """
import gymnasium as gym

def make(length=1, render_mode=None):
    env = gym.make("CartPole-v1", max_episode_steps=length, render_mode=render_mode)
    return env

def plain():
    return gym.make("CartPole-v1")

def none():
    return 3

number = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "task.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "minigrid:MiniGrid-Empty-5x5-v0", "BabyAI-GoToRedBall-v0"]
)
def test_environments_of_gymnasium_are_named_by_their_id(name):
    env = env_named(name)()
    assert env.spec.id == name.rpartition(":")[2]
    # They can be drawn, should that be asked for.
    assert env.render_mode == "rgb_array"
    env.close()


def test_arguments_reach_the_environment():
    env = env_named("FrozenLake-v1", {"map_name": "8x8", "render_mode": "ansi"})()
    assert (env.observation_space.n, env.render_mode) == (64, "ansi")
    env.close()


def test_an_environment_may_be_what_a_function_of_a_file_returns(file):
    env = env_named(f"{file}:make", {"length": 7})()
    assert (env.spec.max_episode_steps, env.render_mode) == (7, "rgb_array")
    env.close()
    other = env_named(f"{file}:plain")()
    assert other.render_mode is None
    other.close()


def test_each_call_makes_an_environment(file):
    make = env_named(f"{file}:make")
    first, second = make(), make()
    assert first is not second
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "env_id: expected the name of an environment, got ''"),
        (None, "env_id: expected the name of an environment, got None"),
        ("a b", "env_id: expected an id of gymnasium, module:id or file.py:function, got 'a b'"),
        ("task.py", "env_id: expected an id of gymnasium, module:id or file.py:function"),
    ],
)
def test_what_can_be_no_name_is_refused_at_once(name, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        env_named(name)


def test_a_file_that_is_not_there_is_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.py: there is no such file"):
        env_named(f"{tmp_path}/none.py:make")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPol-v1", "env_id 'CartPol-v1': Environment `CartPol` doesn't exist. Did you mean"),
        ("CartPole-v9", "env_id 'CartPole-v9': Environment version `v9`"),
        ("Cart_Pole", "env_id 'Cart_Pole'"),
        ("nowhere:X-v0", "env_id 'nowhere:X-v0': needs nowhere, which is not installed"),
        ("a.b:X-v0", "env_id 'a.b:X-v0': needs a, which is not installed"),
    ],
)
def test_an_unknown_environment_is_one_sentence(name, message):
    make = env_named(name)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "defines no function 'missing'"),
        ("number", "defines no function 'number'"),
        ("none", "expected a gymnasium.Env from none, got 3"),
    ],
)
def test_what_a_file_does_not_define_is_one_sentence(file, name, message):
    make = env_named(f"{file}:{name}")
    with pytest.raises(ValueError, match=message):
        make()


def test_a_name_that_a_module_has_registered_needs_no_module():
    gym.register("Registered-v0", "gymnasium.envs.classic_control:CartPoleEnv")
    try:
        env = env_named("Registered-v0")()
        assert env.spec.id == "Registered-v0"
        env.close()
    finally:
        del gym.registry["Registered-v0"]
