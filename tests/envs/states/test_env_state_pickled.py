"""Pickle is used where a user's factory allows it, and nowhere else."""

from __future__ import annotations

import subprocess
import sys

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from env_replays import check_begins_alike, check_goes_on, make, through_file
from gymnasium import wrappers

from parllel.envs.states import PickledState, env_state, load_env_state, missing_env_state


class Urn(gym.Env):
    """Draws balls, and keeps itself in ways that no adapter knows."""

    observation_space = gym.spaces.Box(0, 100, (1,), np.float64)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, balls=40):
        self.balls = balls
        self.left = set()
        self.closed = 0
        self.weigh = lambda ball: ball / 4

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = set(range(self.balls))
        return np.array([0.0]), {}

    def step(self, action):
        ball = int(self.np_random.choice(sorted(self.left)))
        self.left.remove(ball)
        return np.array([self.weigh(ball)]), float(action), len(self.left) < 20, False, {}

    def close(self):
        self.closed += 1


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


def test_pickled_environments_go_on_inside_wrappers_that_are_not(tmp_path):
    def make_env():
        inside = wrappers.TransformReward(Urn(), lambda reward: reward / 3)
        return wrappers.FrameStackObservation(PickledState(inside), 2)

    assert missing_env_state(wrappers.TimeLimit(Urn(), 5)).startswith(
        "Urn: its state cannot be saved"
    )
    assert check_goes_on(make_env, tmp_path, before=33, points=3) >= 4
    check_begins_alike(make_env, tmp_path)


def test_the_environment_that_was_there_is_closed():
    env, old = PickledState(Urn()), Urn()
    fresh = PickledState(old)
    load_env_state(fresh, env_state(env))
    assert fresh.env is not old
    assert (old.closed, fresh.env.closed) == (1, 0)


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Taxi-v4"])
def test_what_pickles_without_its_state_is_missing(name):
    env = PickledState(make(name))
    if name == "Taxi-v4":
        assert missing_env_state(env) is None
    else:
        text = (
            r"PickledState<HalfCheetah-v5>: HalfCheetahEnv pickles only its constructor arguments"
        )
        assert missing_env_state(env).startswith(text)
        assert env_state(env) is None
    env.close()


def test_what_cannot_be_pickled_is_missing():
    urn = Urn()
    urn.generator = (i for i in range(3))
    assert missing_env_state(PickledState(urn)).startswith(
        "PickledState<Urn>: it cannot be pickled"
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (np.zeros(5, np.uint8), "PickledState<Urn>: the pickle cannot be read"),
        (np.zeros(5), "PickledState<Urn>: expected a pickle as .bytes. uint8"),
        ("pickle", "PickledState<Urn>: expected a pickle"),
        (np.frombuffer(cloudpickle.dumps(3), np.uint8), r"expected the pickle of \['Urn'\], got"),
    ],
)
def test_other_pickles_are_refused(content, text):
    env = PickledState(Urn())
    state = env_state(env)
    state["layers"][0]["state"]["pickle"] = content
    with pytest.raises(ValueError, match=text):
        load_env_state(env, state)


def test_nothing_is_unpickled_where_the_factory_does_not_allow_it(tmp_path):
    trap = np.frombuffer(cloudpickle.dumps(Trap()), np.uint8)
    with pytest.raises(SystemExit, match="unpickled"):
        cloudpickle.loads(trap.tobytes())
    state = env_state(PickledState(make("CartPole-v1")))
    state["layers"][0]["state"]["pickle"] = trap
    state = through_file(state, tmp_path)
    with pytest.raises(ValueError, match="expected the state of the layers"):
        load_env_state(make("CartPole-v1"), state)


def test_the_package_imports_no_simulator_and_no_pickle():
    command = "import sys, parllel.envs.states; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.split())
    assert "parllel.envs.states.env_state" in modules
    assert not modules & {"mujoco", "ale_py", "torch", "cv2", "pettingzoo", "mpe2", "cloudpickle"}
