"""Environments in which policies play go on exactly, with what these remember and draw."""

from __future__ import annotations

import pytest
from env_replays import check_begins_alike, check_goes_on, check_goes_on_from_end
from gymnasium import wrappers
from mpe2 import simple_adversary_v3

from parllel.envs.states import env_state, load_env_state
from parllel.policies import OpponentEnv
from parllel.testing.dummy_policies import FrequencyPolicy
from parllel.testing.rock_paper_scissors_env import RockPaperScissorsEnv


def make_env():
    policies = {"blue": FrequencyPolicy(drawn=0.5)}
    return wrappers.TimeLimit(OpponentEnv(RockPaperScissorsEnv((3, 12)), "red", policies), 10)


@pytest.mark.parametrize("before", [0, 4, 31])
def test_games_go_on(before, tmp_path):
    assert check_goes_on(make_env, tmp_path, before=before, points=3, after=20) >= 3


def test_games_go_on_from_their_ends(tmp_path):
    check_begins_alike(make_env, tmp_path)
    check_goes_on_from_end(make_env, tmp_path)


def make_world():
    world = simple_adversary_v3.parallel_env(max_cycles=9, continuous_actions=True)
    return OpponentEnv(world, "agent_0", {"agent_1": "random", "adversary_0": "random"})


def test_worlds_go_on(tmp_path):
    assert check_goes_on(make_world, tmp_path, before=13, points=2, after=20) >= 4


def test_states_of_other_opponents_are_refused():
    env = make_env()
    env.reset(seed=0)
    state = env_state(env)
    policies = state["layers"][1]["state"]["policies"]
    policies["green"] = policies.pop("blue")
    with pytest.raises(
        ValueError, match=r"expected the states of the policies for \['blue'\], got .*'green'"
    ):
        load_env_state(make_env(), state)
