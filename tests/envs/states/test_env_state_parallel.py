"""Environments of several agents go on exactly."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from env_replays import check_begins_alike, check_goes_on, check_goes_on_from_end
from gymnasium import wrappers

from parllel.envs import ParallelEnvAdapter
from parllel.envs.states import env_state, load_env_state, missing_env_state
from parllel.testing.dummy_parallel_env import CountingParallelEnv

LIVES = {"fox": 2, "hen": 9, "dog": 6}
WORLDS = [
    "collect_treasure_v1",
    "simple_v3",
    "simple_adversary_v3",
    "simple_crypto_v3",
    "simple_formation_v1",
    "simple_line_v1",
    "simple_push_v3",
    "simple_reference_v3",
    "simple_speaker_listener_v4",
    "simple_spread_v3",
    "simple_tag_v3",
    "simple_world_comm_v3",
]


class SavedParallelEnv(CountingParallelEnv):
    """Says where it is."""

    def state(self):
        return {"step": self._step, "agents": self.agents}

    def load_state(self, state):
        self._step, self.agents = state["step"], state["agents"]


def counting():
    return ParallelEnvAdapter(SavedParallelEnv(LIVES, {"hen": "truncated"}))


def world(name, **options):
    module = importlib.import_module(f"mpe2.{name}")
    return ParallelEnvAdapter(module.parallel_env(max_cycles=15, **options))


@pytest.mark.parametrize("before", [0, 4, 31])
def test_agents_that_are_gone_stay_gone(before, tmp_path):
    assert check_goes_on(counting, tmp_path, before=before, points=2, after=20) >= 3
    check_begins_alike(counting, tmp_path)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.few(5)
def test_worlds_go_on(name, tmp_path):
    def make_env():
        return wrappers.TimeLimit(world(name), 12)

    assert check_goes_on(make_env, tmp_path, before=31, points=3, after=20) >= 4


@pytest.mark.parametrize("name", ["simple_spread_v3", "simple_crypto_v3"])
def test_worlds_of_continuous_actions_go_on(name, tmp_path):
    def make_env():
        return world(name, continuous_actions=True)

    assert check_goes_on(make_env, tmp_path, before=20, points=2) >= 4
    check_begins_alike(make_env, tmp_path)
    check_goes_on_from_end(make_env, tmp_path)


def test_others_are_missing():
    env = ParallelEnvAdapter(CountingParallelEnv(LIVES))
    text = "ParallelEnvAdapter: the state of the CountingParallelEnv inside cannot be saved"
    assert missing_env_state(env).startswith(text)
    assert env_state(env) is None


def test_agents_with_noise_are_missing():
    env = world("simple_spread_v3")
    env.parallel_env.unwrapped.world.agents[0].u_noise = 0.1
    assert "noise from numpy's global generator" in missing_env_state(env)
    env.close()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda saved: saved.update(live=["cat"]),
            "live: expected a list of agents from .* got .'cat'",
        ),
        (lambda saved: saved.update({"class": "Other"}), "expected the state of a .*, got 'Other'"),
        (lambda saved: saved["inside"].update(core="mpe2.other"), "got the state of mpe2.other"),
        (lambda saved: saved["inside"]["objects"].pop("world"), "with .*'world'"),
        (
            lambda saved: saved["inside"]["objects"]["world"].update(dt={"odd": 3}),
            "expected a saved attribute",
        ),
    ],
)
def test_states_that_do_not_fit_are_refused(change, text):
    env = world("simple_spread_v3")
    env.reset(seed=0)
    env.step({agent: np.int64(1) for agent in env.agents})
    state = env_state(env)
    change(state["layers"][0]["state"])
    with pytest.raises(ValueError, match=f"ParallelEnvAdapter.*{text}"):
        load_env_state(world("simple_spread_v3"), state)
    env.close()
