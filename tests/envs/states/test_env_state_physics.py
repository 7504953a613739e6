"""MuJoCo's environments go on exactly, though several read what the last step derived."""

from __future__ import annotations

from functools import partial

import pytest
from env_replays import (
    check_begins_alike,
    check_goes_on,
    check_goes_on_from_end,
    make,
    through_file,
)
from gymnasium import wrappers

from parllel.envs.states import env_state, load_env_state, missing_env_state

BODIES = [
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
]
# MuJoCo 3 does not run Pusher-v4.
OLD = [body for body in BODIES if body != "Pusher"]


def body(name, version="v5"):
    return partial(make, f"{name}-{version}", max_episode_steps=40)


@pytest.mark.parametrize("before", [0, 25])
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.few(8)
def test_bodies_go_on(name, before, tmp_path):
    assert check_goes_on(body(name), tmp_path, before=before, after=45, points=2) >= 2


@pytest.mark.parametrize("name", OLD)
def test_bodies_of_version_4_go_on(name, tmp_path):
    assert check_goes_on(body(name, "v4"), tmp_path, before=25, after=45) >= 1


@pytest.mark.parametrize("name", ["Hopper", "Pusher"])
def test_bodies_begin_alike_and_go_on_from_an_end(name, tmp_path):
    check_begins_alike(body(name), tmp_path)
    check_goes_on_from_end(body(name), tmp_path)


def test_normalised_bodies_go_on(tmp_path):
    def make_env():
        env = wrappers.NormalizeObservation(body("Ant", "v5")())
        env = wrappers.NormalizeReward(wrappers.ClipAction(env))
        return wrappers.FrameStackObservation(env, 2)

    assert check_goes_on(make_env, tmp_path, points=3) >= 4


def test_arrays_that_the_last_step_derived_are_saved(tmp_path):
    env, fresh = body("Humanoid")(), body("Humanoid")()
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(200):  # until it touches the ground
        env.step(env.action_space.sample())
        if env.unwrapped.data.cfrc_ext.any():
            break
    load_env_state(fresh, through_file(env_state(env), tmp_path))
    one, other = env.unwrapped.data, fresh.unwrapped.data
    for name in ("xipos", "cinert", "cvel", "cfrc_ext", "qfrc_actuator", "ten_length", "ctrl"):
        assert getattr(one, name).any(), name
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
    assert one.time == other.time > 0
    env.close()
    fresh.close()


def test_a_model_that_lets_bodies_sleep_is_missing():
    mujoco = pytest.importorskip("mujoco")
    if not hasattr(mujoco.mjtEnableBit, "mjENBL_SLEEP"):
        pytest.skip("this MuJoCo has no sleep")
    env = body("Hopper")()
    env.unwrapped.model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_SLEEP)
    assert "HopperEnv<Hopper-v5>: its model allows bodies to sleep" in missing_env_state(env)
    env.close()
