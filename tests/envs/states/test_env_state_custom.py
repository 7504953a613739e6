"""Layers of users' own classes answer for themselves, or are named as missing."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from env_replays import check_begins_alike, check_goes_on, make
from gymnasium import wrappers
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.mujoco import MujocoEnv

from parllel.envs.states import (
    env_state,
    load_env_state,
    load_state_as,
    missing_env_state,
    state_as,
)
from parllel.errors import notes_of


def cart_pole():
    return make("CartPole-v1")


class Walk(gym.Env):
    """A random walk that keeps more than its position."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=15):
        self.length = length
        self.places = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.places = [self.np_random.normal()]
        return self._observe(), {"seen": len(self.places)}

    def step(self, action):
        self.places.append(self.places[-1] + action * self.np_random.normal())
        return self._observe(), -1.0, False, len(self.places) > self.length, {}

    def _observe(self):
        return np.array([self.places[-1], sum(self.places)])


class SavedWalk(Walk):
    def state(self):
        return {"places": tuple(self.places)}

    def load_state(self, state):
        self.places = state["places"]


class HalfSavedWalk(Walk):
    def state(self):
        return {}


class WalkWithoutDict(SavedWalk):
    def state(self):
        return 3


class WalkOfObjects(SavedWalk):
    def state(self):
        return {"places": [{1, 2}]}


class Fading(gym.Wrapper):
    """Multiply rewards by a number that shrinks."""

    def __init__(self, env):
        super().__init__(env)
        self.factor = 1.0

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        self.factor *= 0.99
        return observation, reward * self.factor, *rest


class SavedFading(Fading):
    def state(self):
        return {"factor": self.factor}

    def load_state(self, state):
        self.factor = state["factor"]


class Crossed(gym.ActionWrapper):
    """Has no attributes, so no state."""

    def action(self, action):
        return 1 - action


class CrossedLater(Crossed):
    """Has no attributes at first."""

    def action(self, action):
        self.last = action
        return 1 - action


class HeavyPole(CartPoleEnv):
    """Becomes heavier in each episode."""

    def reset(self, **options):
        self.masspole *= 1.1
        return super().reset(**options)


class SavedHeavyPole(HeavyPole):
    # CartPole hides this method behind an attribute of the same name.
    def state(self):
        parent = state_as(self, CartPoleEnv)
        return {"parent": parent, "masspole": self.masspole}

    def load_state(self, state):
        load_state_as(self, CartPoleEnv, state["parent"])
        self.masspole = state["masspole"]


class SavedTarget(MujocoEnv):
    """An environment of its own on MuJoCo, with a target that moves."""

    metadata = {"render_modes": [], "render_fps": 25}

    def __init__(self):
        super().__init__("inverted_pendulum.xml", 2, gym.spaces.Box(-np.inf, np.inf, (5,)))
        self.target = 0.0

    def step(self, action):
        self.do_simulation(action, self.frame_skip)
        self.target += self.np_random.normal()
        return self._observe(), -self.target, False, abs(self.data.qpos[1]) > 0.5, {}

    def reset_model(self):
        self.set_state(self.init_qpos, self.init_qvel + self.np_random.normal(size=2))
        return self._observe()

    def _observe(self):
        return np.concatenate([self.data.qpos, self.data.qvel, [self.target]])

    def state(self):
        return {"mujoco": state_as(self, MujocoEnv), "target": self.target}

    def load_state(self, state):
        load_state_as(self, MujocoEnv, state["mujoco"])
        self.target = state["target"]


SAVED = {
    "Crossed": lambda: Crossed(cart_pole()),
    "SavedWalk": SavedWalk,
    "SavedFading": lambda: wrappers.TimeLimit(SavedFading(cart_pole()), 30),
    "SavedHeavyPole": lambda: wrappers.OrderEnforcing(SavedHeavyPole()),
    "SavedTarget": SavedTarget,
}


@pytest.mark.parametrize("name", SAVED)
def test_classes_of_users_go_on(name, tmp_path):
    assert check_goes_on(SAVED[name], tmp_path, points=3) >= 2
    check_begins_alike(SAVED[name], tmp_path)


@pytest.mark.parametrize(
    ("make_env", "who"),
    [
        (Walk, "Walk: its state cannot be saved; give the class methods state"),
        (HalfSavedWalk, "HalfSavedWalk: its state cannot be saved"),
        (lambda: wrappers.TimeLimit(Walk(), 9), "Walk: its state cannot be saved"),
        (lambda: Fading(cart_pole()), "Fading<CartPole-v1>: its state cannot be saved"),
        (
            lambda: wrappers.TimeLimit(Fading(SavedWalk()), 5),
            "Fading<SavedWalk>: its state cannot be saved",
        ),
        (lambda: Fading(Walk()), "Fading<Walk>: its state cannot be saved"),
        (HeavyPole, "HeavyPole: its state cannot be saved"),
        (lambda: gym.vector.SyncVectorEnv([cart_pole] * 2), "SyncVectorEnv"),
    ],
)
def test_layers_that_cannot_are_named(make_env, who):
    env = make_env()
    assert missing_env_state(env).startswith(who)
    assert env_state(env) is None
    env.close()


def test_a_wrapper_has_state_from_when_it_has_attributes():
    env = CrossedLater(cart_pole())
    env.reset(seed=0)
    assert missing_env_state(env) is None
    env.step(1)
    assert missing_env_state(env).startswith("CrossedLater<CartPole-v1>: its state cannot be saved")


def test_generators_of_others_are_not_taken_for_numpys():
    env = SavedWalk()
    env._np_random = np.random.RandomState(0)
    assert missing_env_state(env).startswith("SavedWalk: its np_random is a")


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (WalkWithoutDict, r"WalkWithoutDict.state\(\): expected a dict, got 3"),
        (WalkOfObjects, r"WalkOfObjects.state\(\).places\[0\]: expected arrays and JSON"),
    ],
)
def test_states_that_no_file_can_hold_are_errors(cls, text):
    with pytest.raises(TypeError, match=text):
        env_state(cls())
    with pytest.raises(TypeError, match=text):
        missing_env_state(cls())


def test_state_as_takes_instances_of_known_classes_alone():
    with pytest.raises(TypeError, match="Walk: expected a CartPoleEnv"):
        state_as(Walk(), CartPoleEnv)
    with pytest.raises(ValueError, match="the state of class Walk cannot be saved"):
        state_as(Walk(), Walk)
    with pytest.raises(ValueError, match="the state of class Walk cannot be saved"):
        load_state_as(Walk(), Walk, {})


def test_errors_of_a_users_load_state_say_whose_they_are():
    class Picky(SavedWalk):
        def load_state(self, state):
            raise RuntimeError("no")

    state = env_state(Picky())
    with pytest.raises(RuntimeError, match="no") as caught:
        load_env_state(Picky(), state)
    assert "saved state of Picky was loaded" in "".join(notes_of(caught.value))
