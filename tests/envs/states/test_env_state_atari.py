"""Atari games go on exactly, with the action that sticks."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from env_replays import Player, actions_of, check_begins_alike, check_goes_on, make
from gymnasium import wrappers

from parllel.envs.states import env_state, load_env_state, missing_env_state

ale_py = pytest.importorskip("ale_py")
gym.register_envs(ale_py)


def game(name, frames=None, **options):
    options = {"frameskip": 1, "max_num_frames_per_episode": frames, **options}
    env = make(f"ALE/{name}-v5", **options)
    env = wrappers.AtariPreprocessing(env, noop_max=5, terminal_on_life_loss=True)
    return wrappers.FrameStackObservation(env, 4)


@pytest.mark.parametrize("name", ["Breakout", "Pong"])
@pytest.mark.parametrize("stickiness", [0.0, 0.25])
@pytest.mark.few(1)
def test_games_go_on(name, stickiness, tmp_path):
    make_env = partial(game, name, frames=250, repeat_action_probability=stickiness)
    episodes = check_goes_on(make_env, tmp_path, before=31, points=4, after=40)
    assert episodes >= 2


def test_games_begin_alike(tmp_path):
    check_begins_alike(partial(game, "Breakout"), tmp_path)


def test_raw_frames_and_skips_of_the_environment_go_on(tmp_path):
    def make_env():
        env = make("ALE/Breakout-v5", frameskip=(2, 5), max_num_frames_per_episode=200)
        return wrappers.GrayscaleObservation(wrappers.ResizeObservation(env, (50, 40)))

    assert check_goes_on(make_env, tmp_path, before=10, points=3, after=40) >= 1


@pytest.mark.parametrize("stickiness", [0.25, 0.6])
@pytest.mark.few(1)
def test_the_action_that_sticks_goes_on_as_well(stickiness):
    # What is commanded first after the state is another action, so that one that sticks can be told from it.
    def make_env():
        env = make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=stickiness)
        return wrappers.TimeLimit(env, 10_000)

    env, undisturbed, fresh = make_env(), make_env(), make_env()
    for one in (env, undisturbed):
        one.reset(seed=4)
        Player(one).play([1] * 30)
    for turn in range(16):
        action = 2 + turn % 2
        for one in (env, undisturbed):
            Player(one).play([action] * 3)
        load_env_state(fresh, env_state(env))
        others = [5 - action] * 4
        for one in (env, undisturbed, fresh):
            Player(one).play(others)
        ram = [one.unwrapped.ale.getRAM() for one in (env, undisturbed, fresh)]
        assert np.array_equal(ram[0], ram[1])
        assert np.array_equal(ram[0], ram[2])
    for one in (env, undisturbed, fresh):
        one.close()


def test_strengths_that_stick_are_missing():
    env = make("ALE/Breakout-v5", continuous=True)
    assert "AtariEnv<ALE/Breakout-v5>: it has continuous sticky actions" in missing_env_state(env)
    env.close()
    env = make("ALE/Breakout-v5", continuous=True, repeat_action_probability=0.0)
    assert missing_env_state(env) is None
    env.close()


def test_a_game_that_is_over_says_its_state():
    env = make("ALE/Breakout-v5", max_num_frames_per_episode=40)
    env.reset(seed=0)
    player = Player(env)
    while not player.over:
        player.play(actions_of(env, 1))
    fresh = make("ALE/Breakout-v5", max_num_frames_per_episode=40)
    load_env_state(fresh, env_state(env))
    assert np.array_equal(env.reset()[0], fresh.reset()[0])
    env.close()
    fresh.close()
