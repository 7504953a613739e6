from __future__ import annotations

import re
import subprocess
import sys

import gymnasium as gym
import pytest

from parllel.cli import main
from parllel.env_names import check_env_name, env_named

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
CARTS = """
import gymnasium as gym
gym.register("ShortCart-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=9)
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
        ("", "environment: expected a name, got ''"),
        (None, "environment: expected a name, got None"),
        ("a b", "environment 'a b': expected an id of gymnasium, module:id or file.py:function"),
        ("task.py", "environment 'task.py': expected an id of gymnasium, module:id or"),
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
        (
            "CartPol-v1",
            "environment 'CartPol-v1': Environment `CartPol` doesn't exist. Did you mean",
        ),
        ("CartPole-v9", "environment 'CartPole-v9': Environment version `v9`"),
        ("Cart_Pole", "environment 'Cart_Pole'"),
        ("nowhere:X-v0", "environment 'nowhere:X-v0': needs nowhere, which is not installed"),
        ("a.b:X-v0", "environment 'a.b:X-v0': needs a, which is not installed"),
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


def at_operators(name, capfd):
    command = [sys.executable, "-m", "parllel.operators.operators_worker", "--policy=noop"]
    words = [f"--env-id={name}", "--max-steps=3", "--telemetry-dir=telemetry"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def at_play(name, capfd):
    status = main(["play", "random", "--env", name, "--seeds", "0"])
    return status, *capfd.readouterr()


def at_remote(name, capfd):
    own = name if name.startswith("gymnasium/") else f"gymnasium/{name}"
    words = ["--environment", own, "--agents", "random", "--configuration", STEPS]
    return main(["evaluate", *words]), *capfd.readouterr()


STEPS = '{"episodeSteps": 4, "seed": 0}'
DOORS = pytest.mark.parametrize("door", [at_operators, at_play, at_remote])


@DOORS
@pytest.mark.parametrize(
    "name",
    [
        "CartPole-v1",
        "gymnasium/CartPole-v1",
        "short_carts:ShortCart-v0",
        "ALE/Pong-v5",
        "{file}:make",
        "task.py:plain",
    ],
)
def test_each_name_works_at_each_door(door, name, file, monkeypatch, capfd):
    monkeypatch.chdir(file.parent)
    (file.parent / "short_carts.py").write_text(CARTS)
    monkeypatch.syspath_prepend(file.parent)
    monkeypatch.setenv("PYTHONPATH", str(file.parent))
    monkeypatch.delitem(gym.registry, "ShortCart-v0", raising=False)
    monkeypatch.delitem(sys.modules, "short_carts", raising=False)
    status, _, errors = door(name.format(file=file), capfd)
    assert status == 0, errors


@DOORS
@pytest.mark.parametrize(
    "name", ["minigrid:MiniGrid-Empty-5x5-v0", "gymnasium/BabyAI-GoToRedBall-v0"]
)
def test_each_door_finds_the_environments_of_minigrid(door, name, monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    status, _, errors = door(name, capfd)
    # Their missions are text, which only operators take.
    assert status == 0 or "mission" in errors.lower()


@DOORS
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPol-v1", "CartPol-v1': Environment `CartPol` doesn't exist."),
        ("nowhere:X-v0", "nowhere:X-v0': needs nowhere, which is not installed"),
        ("a b", "a b': expected an id of gymnasium, module:id or file.py:function"),
        ("none.py:make", "none.py:make': none.py: there is no such file"),
        ("task.py:missing", "task.py:missing': task.py defines no function 'missing'"),
    ],
)
def test_each_door_refuses_a_name_in_the_same_words(door, name, message, file, monkeypatch, capfd):
    monkeypatch.chdir(file.parent)
    status, _, errors = door(name, capfd)
    assert status != 0
    assert message in errors.splitlines()[-1]


def test_a_name_is_checked_without_its_code(tmp_path):
    (tmp_path / "task.py").write_text("raise SystemExit")
    check_env_name(f"{tmp_path}/task.py:make")
    check_env_name("minigrid:Not-There-v0")
    with pytest.raises(ValueError, match="environment 'CartPol-v1': Environment `CartPol`"):
        check_env_name("CartPol-v1")
    with pytest.raises(ValueError, match="needs nowhere, which is not installed"):
        check_env_name("nowhere:X-v0")
