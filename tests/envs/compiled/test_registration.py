"""The ids of compiled environments, in this process and in new ones."""

from __future__ import annotations

import subprocess
import sys

import gymnasium as gym
import minigrid  # noqa: F401 (registers its environments)
import numpy as np
import pytest
from gymnasium.envs.registration import load_env_creator

from parllel.envs.compiled import CartPole, CompiledEnv
from parllel.policies import env_named
from parllel.vector import VectorEnv

IDS = [
    env_id for env_id, spec in gym.registry.items() if str(spec.entry_point).startswith("parllel.")
]
NOTHING_COMPILED = """
import sys, parllel.envs.compiled
print("numba" in sys.modules, "parllel.envs.compiled.classic_control" in sys.modules)
"""


def printed_by(script):
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_ids_are_those_of_gymnasium_and_minigrid_in_our_namespace():
    assert len(IDS) == 17
    others = {env_id.removeprefix("MiniGrid-") for env_id in gym.registry}
    # Atari's game has our name too, once it is registered.
    assert {env_id.removeprefix("parllel/") for env_id in IDS} - {"Breakout-v0"} <= others


@pytest.mark.parametrize("env_id", IDS)
def test_each_leads_to_a_class(env_id):
    creator = load_env_creator(gym.spec(env_id).entry_point)
    assert issubclass(creator, CompiledEnv)
    assert creator.__name__ == env_id.removeprefix("parllel/")[:-3].replace("-", "")


@pytest.mark.parametrize("env_id", ["parllel/CartPole-v1", "parllel/DoorKey-8x8-v0"])
def test_gymnasium_makes_them_without_wrappers(env_id):
    env = gym.make(env_id)
    assert isinstance(env, CompiledEnv)
    assert env.spec.id == env_id
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    again = gym.make(env.spec)
    np.testing.assert_array_equal(again.reset(seed=0)[0], observation)


def test_parameters_are_arguments():
    assert gym.make("parllel/CartPole-v1", gravity=3).gravity == 3.0


def test_importing_the_package_compiles_nothing():
    assert printed_by(NOTHING_COMPILED) == ["False", "False"]


def test_a_new_process_finds_them_by_the_module():
    script = (
        "import gymnasium\n"
        "print(type(gymnasium.make('parllel.envs.compiled:parllel/CartPole-v1')).__name__)"
    )
    assert printed_by(script) == ["CartPole"]


def test_names_of_environments_lead_to_them():
    assert isinstance(env_named("parllel/CartPole-v1")(), CartPole)
    script = (
        "from parllel.policies import env_named\n"
        "print(type(env_named('parllel/DoorKey-8x8-v0')()).__name__)"
    )
    assert printed_by(script) == ["DoorKey8x8"]


@pytest.mark.parametrize("first", ["parllel.vector", "parllel.envs.compiled"])
def test_they_are_vector_environments_after_the_import_of_parllel_vector(first):
    script = f"""
import gymnasium, {first}, parllel.vector
for env_id in ("parllel/CartPole-v1", "parllel/Empty-5x5-v0", "parllel/Blackjack-v1"):
    envs = gymnasium.make_vec(env_id, num_envs=2, parallel=False)
    print(type(envs).__name__, envs.spec.id)
    envs.close()
print(type(gymnasium.make("parllel/CartPole-v1")).__name__)
"""
    ids = ("parllel/CartPole-v1", "parllel/Empty-5x5-v0", "parllel/Blackjack-v1")
    expected = [word for env_id in ids for word in ("VectorEnv", env_id)]
    assert printed_by(script) == [*expected, "CartPole"]


def test_a_vector_environment_of_them_returns_what_gymnasium_s_does():
    env = gym.make_vec("parllel/CartPole-v1", num_envs=3, parallel=False, gravity=3.0)
    assert isinstance(env, VectorEnv)
    assert env.get_attr("gravity") == (3.0,) * 3
    reference = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    reference.set_attr("gravity", 3.0)
    np.testing.assert_array_equal(env.reset(seed=3)[0], reference.reset(seed=3)[0])
    actions = np.random.default_rng(0).integers(2, size=(80, 3))
    for action in actions:
        for ours, theirs in zip(env.step(action)[:4], reference.step(action)[:4], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    env.close()
    reference.close()
