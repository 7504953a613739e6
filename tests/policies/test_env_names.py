from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from start_methods import SENT_SPAWN_SOAKS

from parllel.cages import ProcessCage
from parllel.cli import main
from parllel.policies.env_names import check_env_name, env_named

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
        ("a b", "environment 'a b': expected a Gymnasium id, module:id or file.py:function"),
        ("task.py", "environment 'task.py': expected a Gymnasium id, module:id or"),
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
    command = [
        sys.executable,
        "-m",
        "parllel.distributed.operators.workers.operators_worker",
        "--policy=noop",
    ]
    words = [f"--env-id={name}", "--max-steps=3", "--telemetry-dir=telemetry"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def at_play(name, capfd):
    status = main(["play", "random", "--env", name, "--seeds", "0"])
    return status, *capfd.readouterr()


def at_remote(name, capfd):
    own = name if name.startswith("gymnasium/") else f"gymnasium/{name}"
    words = ["--environment", own, "--agents", "random", "--configuration", STEPS]
    return main(["remote", "evaluate", *words]), *capfd.readouterr()


STEPS = '{"episodeSteps": 4, "seed": 0}'
ENTRY_POINTS = pytest.mark.parametrize("entry_point", [at_operators, at_play, at_remote])


@ENTRY_POINTS
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
@pytest.mark.few(4)
def test_each_name_works_at_each_entry_point(entry_point, name, file, monkeypatch, capfd):
    monkeypatch.chdir(file.parent)
    (file.parent / "short_carts.py").write_text(CARTS)
    monkeypatch.syspath_prepend(file.parent)
    monkeypatch.setenv("PYTHONPATH", str(file.parent))
    monkeypatch.delitem(gym.registry, "ShortCart-v0", raising=False)
    monkeypatch.delitem(sys.modules, "short_carts", raising=False)
    status, _, errors = entry_point(name.format(file=file), capfd)
    assert status == 0, errors


@ENTRY_POINTS
@pytest.mark.parametrize(
    "name", ["minigrid:MiniGrid-Empty-5x5-v0", "gymnasium/BabyAI-GoToRedBall-v0"]
)
def test_each_entry_point_finds_the_environments_of_minigrid(
    entry_point, name, monkeypatch, tmp_path, capfd
):
    monkeypatch.chdir(tmp_path)
    status, _, errors = entry_point(name, capfd)
    # Their missions are text, which only operators take.
    assert status == 0 or "mission" in errors.lower()


@ENTRY_POINTS
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPol-v1", "CartPol-v1': Environment `CartPol` doesn't exist."),
        ("nowhere:X-v0", "nowhere:X-v0': needs nowhere, which is not installed"),
        ("a b", "a b': expected a Gymnasium id, module:id or file.py:function"),
        ("none.py:make", "none.py:make': none.py: there is no such file"),
        ("task.py:missing", "task.py:missing': task.py defines no function 'missing'"),
    ],
)
@pytest.mark.few(3)
def test_each_entry_point_refuses_a_name_in_the_same_words(
    entry_point, name, message, file, monkeypatch, capfd
):
    monkeypatch.chdir(file.parent)
    status, _, errors = entry_point(name, capfd)
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


class Own(gym.Env):
    """An environment without a render mode, which its constructor does not take."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), 1.0, True, False, {}


class Drawn(Own):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)


class Maker:
    def __call__(self):
        return Own()


ENTRY_POINTS = {
    "class": Own,
    "drawn": Drawn,
    "lambda": lambda: Own(),
    "partial": partial(Own),
    "object": Maker(),
    "drawn by a lambda": lambda: Drawn(),
    "text": "gymnasium.envs.classic_control:CartPoleEnv",
}


@pytest.fixture(params=sorted(ENTRY_POINTS))
def own(request):
    """The id of an environment that a script has registered, by each kind of entry point."""
    gym.register("Own-v0", ENTRY_POINTS[request.param], max_episode_steps=5)
    yield "Own-v0"
    del gym.registry["Own-v0"]


def test_entry_points_of_every_kind_are_made(own):
    env = env_named(own)()
    drawn = "rgb_array" if gym.spec(own).entry_point in (Drawn, ENTRY_POINTS["text"]) else None
    assert env.render_mode == drawn
    env.close()
    env_named(f"gymnasium/{own}", {"render_mode": None})().close()
    check_env_name(own)


@pytest.mark.parametrize("method", SENT_SPAWN_SOAKS)
def test_entry_points_of_every_kind_are_made_in_workers(own, method):
    with ProcessCage(env_named(own), start_method=method, seed=0) as cage:
        cage.reset_async()
        assert cage.await_step().observation.shape == (cage.spaces.observation.shape)


def test_entry_points_of_every_kind_are_played(own, capsys):
    assert main(["play", "random", "--env", own, "--seeds", "0-1"]) == 0
    assert "seed 1: return" in capsys.readouterr().out


def test_entry_points_of_every_kind_are_games(own):
    pytest.importorskip("msgspec", reason="the extra `remote` is not installed")
    from parllel.distributed.remote import make

    with make(f"gymnasium/{own}", {"seed": 1}, debug=True) as env:
        for _ in range(2):
            env.run(["random"])
            assert env.state[0]["status"] == "DONE"
            env.reset()
        assert "html" in env.render(mode="html")


def test_entry_points_of_every_kind_are_operated(own):
    pytest.importorskip("msgspec", reason="the extra `operators` is not installed")
    from parllel.distributed.operators.workers.interactive_runtime import InteractiveRuntime

    runtime = InteractiveRuntime(lambda observation: 0, env_named(own))
    runtime.bind()
    assert json.loads(runtime.answer(b'{"cmd": "reset", "seed": 1}'))["env_id"] == own
    assert json.loads(runtime.answer(b'{"cmd": "step"}').splitlines()[0])["step_index"] == 1
    runtime.close()


def test_a_vector_environment_only_is_no_environment():
    gym.register("Own-v0", vector_entry_point="gymnasium.envs.classic_control:CartPoleVectorEnv")
    try:
        with pytest.raises(ValueError, match=r"environment 'Own-v0': .*entry"):
            env_named("Own-v0")()
    finally:
        del gym.registry["Own-v0"]
