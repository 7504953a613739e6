"""Plays environments twice, and compares what came of it to the last bit."""

from __future__ import annotations

import copy
import warnings

import gymnasium as gym
import numpy as np

from parllel.envs.states import env_state, load_env_state, missing_env_state
from parllel.runs import load_state, save_state


class Player:
    """Steps an environment with given actions, resets it when it is over, and keeps all that came."""

    def __init__(self, env, over=False, resets=True):
        self.env = env
        self.over = over  # a reset is due
        self.resets = resets
        self.episodes = 0

    def play(self, actions):
        came = []
        for action in actions:
            if self.over and self.resets:
                came.append(copy.deepcopy(self.env.reset()))
            came.append(copy.deepcopy(self.env.step(copy.deepcopy(action))))
            self.over = bool(came[-1][2] or came[-1][3])
            self.episodes += self.over
        return came


def make(name, **options):
    """Make an environment by its id; some are said to be old, or to have odd spaces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gym.make(name, **options)


def actions_of(env, n, seed=0):
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(n)]


def assert_same(one, other, at="it"):
    """Compare types, dtypes, shapes and every number; seconds are left out."""
    assert type(one) is type(other), at
    if isinstance(one, dict):
        assert list(one) == list(other), at
        for key in one:
            if not (key == "t" and set(one) == {"r", "l", "t"}):
                assert_same(one[key], other[key], f"{at}[{key!r}]")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), at
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{at}[{i}]")
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, at
        assert one.shape == other.shape, at
        assert one.tobytes() == other.tobytes(), at
    else:
        assert one == other or (one != one and other != other), at


def through_file(state, tmp_path):
    path = tmp_path / "state.zip"
    save_state(path, state)
    return load_state(path)


def check_goes_on(make_env, tmp_path, before=40, after=60, seed=3, resets=True, points=1):
    """Save at several points of a run; each time another environment goes on exactly as the run does.

    The run itself is compared with one that was never asked for its state. Return its episodes.
    """
    envs = [make_env(), make_env()]
    run, undisturbed = (Player(env, resets=resets) for env in envs)
    try:
        assert_same(*(player.env.reset(seed=seed) for player in (run, undisturbed)))
        actions = actions_of(run.env, before + points * after)
        assert_same(run.play(actions[:before]), undisturbed.play(actions[:before]))
        for point in range(points):
            assert missing_env_state(run.env) is None
            state = through_file(env_state(run.env), tmp_path)
            fresh = make_env()
            envs.append(fresh)
            load_env_state(fresh, state)
            follower = Player(fresh, run.over, resets)
            now = actions[before + point * after : before + (point + 1) * after]
            expected = undisturbed.play(now)
            assert_same(expected, run.play(now), "run")
            assert_same(expected, follower.play(now), "loaded")
        return undisturbed.episodes
    finally:
        for env in envs:
            env.close()


def check_begins_alike(make_env, tmp_path, seed=5):
    """Save before the first reset."""
    first, second = make_env(), make_env()
    try:
        load_env_state(second, through_file(env_state(first), tmp_path))
        assert_same(first.reset(seed=seed), second.reset(seed=seed))
        actions = actions_of(first, 20)
        assert_same(Player(first).play(actions), Player(second).play(actions))
    finally:
        first.close()
        second.close()


def check_goes_on_from_end(make_env, tmp_path, seed=1, most=2000):
    """Save when an episode is over and the reset has not been made."""
    env, fresh = make_env(), make_env()
    try:
        env.reset(seed=seed)
        player = Player(env)
        actions = iter(actions_of(env, most))
        while not player.over:
            player.play([next(actions)])
        load_env_state(fresh, through_file(env_state(env), tmp_path))
        actions = actions_of(env, 30, seed=9)
        assert_same(player.play(actions), Player(fresh, over=True).play(actions))
    finally:
        env.close()
        fresh.close()
