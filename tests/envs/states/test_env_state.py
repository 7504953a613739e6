"""Environments and wrappers go on exactly where they were, through the file of a checkpoint."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from env_replays import (
    assert_same,
    check_begins_alike,
    check_goes_on,
    check_goes_on_from_end,
    make,
    through_file,
)
from gymnasium import wrappers

from parllel.envs.states import env_state, load_env_state

TABLES = {
    "Blackjack-v1": {},
    "CliffWalking-v1": {"is_slippery": True, "max_episode_steps": 30},
    "FrozenLake-v1": {},
    "Taxi-v4": {"max_episode_steps": 30, "fickle_passenger": True, "is_rainy": True},
}
CONTROL = {
    "Acrobot-v1": {"max_episode_steps": 30},
    "CartPole-v1": {},
    "MountainCar-v0": {"max_episode_steps": 30},
    "MountainCarContinuous-v0": {"max_episode_steps": 30},
    "Pendulum-v1": {"max_episode_steps": 30},
}
SMALL = [partial(make, name, **options) for name, options in {**TABLES, **CONTROL}.items()]
SMALL_IDS = [*TABLES, *CONTROL]


@pytest.mark.parametrize("make_env", SMALL, ids=SMALL_IDS)
@pytest.mark.parametrize("before", [0, 47])
def test_small_environments_go_on(make_env, before, tmp_path):
    assert check_goes_on(make_env, tmp_path, before=before, points=3) >= 3


@pytest.mark.parametrize("make_env", SMALL, ids=SMALL_IDS)
def test_small_environments_begin_alike(make_env, tmp_path):
    check_begins_alike(make_env, tmp_path)


@pytest.mark.parametrize("make_env", SMALL, ids=SMALL_IDS)
def test_small_environments_go_on_from_an_end(make_env, tmp_path):
    check_goes_on_from_end(make_env, tmp_path)


def cart_pole(**options):
    return make("CartPole-v1", **options)


def acrobot():
    return make("Acrobot-v1", max_episode_steps=25)


def pendulum():
    return make("Pendulum-v1", max_episode_steps=20)


def with_time_apart():
    env = wrappers.TimeAwareObservation(cart_pole(), flatten=False)
    return wrappers.FrameStackObservation(env, 3, padding_type="zero")


def with_statistics():
    env = wrappers.NormalizeReward(wrappers.NormalizeObservation(pendulum()), gamma=0.9)
    return wrappers.RecordEpisodeStatistics(env, buffer_length=3)


def with_functions():
    env = wrappers.ClipAction(wrappers.RescaleAction(pendulum(), np.float32(-0.5), np.float32(0.5)))
    env = wrappers.TransformAction(env, lambda action: action / 2, env.action_space)
    env = wrappers.TransformObservation(env, lambda o: o[:2], gym.spaces.Box(-1, 1, (2,)))
    env = wrappers.ReshapeObservation(wrappers.DtypeObservation(env, np.float32), (2, 1))
    env = wrappers.TransformReward(wrappers.ClipReward(env, -5, 0), lambda reward: 2 * reward)
    return wrappers.FlattenObservation(wrappers.RescaleObservation(env, -2, 2))


def with_choices():
    env = wrappers.TimeAwareObservation(acrobot(), flatten=False)
    return wrappers.FilterObservation(env, ["obs"])


STACKS = {
    "Autoreset": lambda: wrappers.Autoreset(cart_pole()),
    "Delay": lambda: wrappers.DelayObservation(cart_pole(), 3),
    "Filter": with_choices,
    "FrameStack": lambda: wrappers.FrameStackObservation(cart_pole(), 4),
    "MaxAndSkip": lambda: wrappers.MaxAndSkipObservation(acrobot(), 4),
    "Repeat": lambda: wrappers.RepeatAction(acrobot(), 2),
    "Statistics": with_statistics,
    "Sticky": lambda: wrappers.StickyAction(cart_pole(), 0.6, (1, 4)),
    "TimeApart": with_time_apart,
    "Time": lambda: wrappers.TimeAwareObservation(cart_pole(), normalize_time=True),
    "Transform": with_functions,
    "plain": lambda: cart_pole(disable_env_checker=True),
}


@pytest.mark.parametrize("name", STACKS)
def test_wrappers_go_on(name, tmp_path):
    resets = name != "Autoreset"
    episodes = check_goes_on(STACKS[name], tmp_path, before=23, points=5, after=20, resets=resets)
    assert episodes >= 3
    check_begins_alike(STACKS[name], tmp_path)


def test_statistics_of_episodes_and_their_clock_go_on(tmp_path):
    env, fresh = (wrappers.RecordEpisodeStatistics(cart_pole(), 5) for _ in range(2))
    env.reset(seed=0)
    for _ in range(90):
        if env.step(1)[2]:
            env.reset()
    load_env_state(fresh, through_file(env_state(env), tmp_path))
    for queue in ("return_queue", "length_queue", "time_queue"):
        assert list(getattr(fresh, queue)) == list(getattr(env, queue))
        assert getattr(fresh, queue).maxlen == 5
    assert fresh.episode_count == env.episode_count > 5
    assert fresh.episode_start_time > 0  # moved by what passed in between
    assert env.episode_start_time <= fresh.episode_start_time


@pytest.mark.parametrize(
    ("make_env", "layer", "attribute", "value"),
    [
        (cart_pole, "PassiveEnvChecker", "checked_step", True),
        (cart_pole, "PassiveEnvChecker", "checked_render", True),
        (cart_pole, "CartPoleEnv", "steps_beyond_terminated", 0),
        (pendulum, "PendulumEnv", "last_u", np.float32(0.3)),
        (with_statistics, "NormalizeObservation", "_update_running_mean", False),
        (with_statistics, "NormalizeReward", "_update_running_mean", False),
        (SMALL[0], "BlackjackEnv", "dealer_top_card_suit", np.str_("H")),
        (SMALL[0], "BlackjackEnv", "dealer_top_card_value_str", "K"),
        (SMALL[1], "CliffWalkingEnv", "lastaction", 2),
        (SMALL[2], "FrozenLakeEnv", "lastaction", np.int64(1)),
        (SMALL[3], "TaxiEnv", "lastaction", 3),
        (SMALL[3], "TaxiEnv", "fickle_step", True),
        (SMALL[3], "TaxiEnv", "taxi_orientation", 3),
    ],
)
def test_what_seldom_shows_in_numbers_is_saved(make_env, layer, attribute, value, tmp_path):
    env, fresh = make_env(), make_env()
    env.reset(seed=0)
    setattr(layer_of(env, layer), attribute, value)
    load_env_state(fresh, through_file(env_state(env), tmp_path))
    assert_same(getattr(layer_of(fresh, layer), attribute), value)


def layer_of(env, name):
    while type(env).__name__ != name:
        env = env.env
    return env


def test_seeds_of_later_resets_are_those_that_would_have_come(tmp_path):
    env, fresh = cart_pole(), cart_pole()
    env.reset(seed=12)
    load_env_state(fresh, through_file(env_state(env), tmp_path))
    assert fresh.unwrapped.np_random_seed == 12
    assert_same([env.reset() for _ in range(3)], [fresh.reset() for _ in range(3)])
    assert_same(env.reset(seed=5), fresh.reset(seed=5))


def test_a_state_shares_no_memory(tmp_path):
    env, fresh = (wrappers.FrameStackObservation(cart_pole(), 2) for _ in range(2))
    env.reset(seed=0)
    state = env_state(env)
    kept = through_file(state, tmp_path)
    for _ in range(4):
        env.step(1)
    assert_same(through_file(state, tmp_path), kept)
    load_env_state(fresh, state)
    fresh.step(1)
    assert_same(through_file(state, tmp_path), kept)
