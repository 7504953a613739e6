from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from parllel.envs.single_env_adapter import SingleEnvAdapter, info_of


class CountingEnv(gym.Env):
    """Nested observations and infos; ends after three steps."""

    observation_space = gym.spaces.Dict(
        {"x": gym.spaces.Box(0, 100, (2,), np.float32), "y": gym.spaces.Discrete(100)}
    )
    action_space = gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,))])

    def __init__(self):
        self.x = np.zeros(2, np.float32)
        self.actions = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.start = int(self.np_random.integers(50))
        self.x[:] = self.start
        return {"x": self.x.copy(), "y": self.start}, {"start": self.start}

    def step(self, action):
        self.actions.append(action)
        self.steps += 1
        self.x += 1
        ended = self.steps == 3
        info = {"steps": self.steps, **({"last": True} if ended else {}), "deep": {"z": self.x * 2}}
        return {"x": self.x.copy(), "y": self.start + self.steps}, 0.5, ended, False, info


def episodes(env, n=3, seed=5):
    """Return all that n episodes of an environment show."""
    shown = []
    for number in range(n):
        observation, info = env.reset(seed=seed if number == 0 else None)
        shown.append((observation, info))
        ended = False
        while not ended:
            *result, info = env.step((1, np.array([0.5, -0.5], np.float32)))
            ended = result[2] or result[3]
            shown.append((*result, info))
    return shown


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_array_equal(found, expected)


def plain(value):
    """Return numbers of numpy as Python's, which vector environments turn into arrays."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(part) for part in value)
    if isinstance(value, np.ndarray) and value.shape:
        return value.copy()
    return value.item() if isinstance(value, (np.generic, np.ndarray)) else value


@pytest.mark.parametrize("mode", AutoresetMode)
def test_an_environment_of_one_plays_as_the_environment_itself(mode):
    env = SingleEnvAdapter(SyncVectorEnv([CountingEnv], autoreset_mode=mode))
    bare = CountingEnv()
    expected = []
    for number in range(3):
        observation, info = bare.reset(seed=5 if number == 0 else None)
        expected.append(plain((observation, info)))
        for _ in range(3):
            expected.append(plain(bare.step((1, np.array([0.5, -0.5], np.float32)))))
    assert_same(plain(episodes(env)), expected)
    env.close()


def test_observations_are_copies():
    env = SingleEnvAdapter(SyncVectorEnv([CountingEnv], copy=False))
    first, _ = env.reset(seed=1)
    kept = first["x"].copy()
    env.step((0, np.zeros(2, np.float32)))
    np.testing.assert_array_equal(first["x"], kept)


def test_a_reset_within_the_step_is_not_repeated_unless_it_is_asked_for_with_a_seed():
    env = SingleEnvAdapter(SyncVectorEnv([CountingEnv], autoreset_mode=AutoresetMode.SAME_STEP))
    episodes(env, 1)
    seeded, _ = env.reset(seed=5)
    assert seeded["y"] == CountingEnv().reset(seed=5)[0]["y"]


def test_an_environment_whose_seed_is_fixed_is_made_again_for_a_seeded_reset():
    made = []

    def make(seed):
        made.append(seed)
        return SyncVectorEnv([partial(gym.make, "CartPole-v1")])

    first = make(None)
    env = SingleEnvAdapter(first, make)
    env.reset(seed=3)
    env.reset()
    assert made == [None, 3]
    assert first.closed
    assert not env.vector_env.closed
    env.close()


def test_several_environments_are_refused():
    several = SyncVectorEnv([CountingEnv] * 2)
    with pytest.raises(ValueError, match="expected a single environment, got 2"):
        SingleEnvAdapter(several)


def test_what_an_info_has_for_others_is_left_out():
    infos = {
        "a": np.array([1, 2]),
        "_a": np.array([True, False]),
        "b": {"c": np.array([3, 4]), "_c": np.array([True, True])},
        "_b": np.array([False, True]),
        "_own": np.array([5, 6]),
        "all": np.array(7),
        "three": [1, 2, 3],
    }
    assert info_of(infos, 0, 2) == {"a": 1, "_own": 5, "all": 7, "three": [1, 2, 3]}
    assert info_of(infos, 1, 2) == {"b": {"c": 4}, "_own": 6, "all": 7, "three": [1, 2, 3]}
