"""Environments that return what they should not."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from cage_makers import MAKERS, bind

from parllel.cages import Cage, VectorEnvFactory, VectorizedCage
from parllel.samplers import plan_sampling
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import run, run_rows
from parllel.testing.cages.row_reference import assert_same_tree, make_samples, plain, read_batch
from parllel.testing.faulty_envs import (
    MALFORMED_FLAGS,
    MALFORMED_OBSERVATIONS,
    MALFORMED_REWARDS,
    MalformedEnv,
)

NAME = r"environment 4 \(CountingEnv\): "
MARK = np.zeros(1, np.float32)
# layout, what comes instead, what the error says
# Checked where the environment is, so of a Cage only; the errors of others arrive as those below do.
NESTED: list[tuple[str, Any, str]] = [
    ("image", lambda: np.zeros((2, 2, 3), np.float32), "expected dtype uint8, got float32"),
    ("image", lambda: np.full((2, 2, 3), 300), "expected numbers from 0 to 255"),
    ("image", lambda: np.zeros((2, 2), np.uint8), r"expected shape \(2, 2, 3\), got \(2, 2\)"),
    ("discrete", lambda: 3.5, "expected dtype int64, got float64"),
    ("discrete", lambda: 1000, "expected numbers from 0 to 999"),
    ("discrete", lambda: np.zeros(1, int), r"expected shape \(\), got \(1,\)"),
    ("scalar", lambda: 1.0, r"expected shape \(1,\), got \(\)"),
    ("float64", lambda: np.zeros((3, 1)), r"expected shape \(3,\), got \(3, 1\)"),
    ("dict", lambda: {"mark": MARK}, r"expected keys \['clock', 'mark'\]"),
    ("dict", lambda: np.zeros(3), r"expected keys \['clock', 'mark'\]"),
    ("dict", lambda: {"mark": MARK, "clock": None}, r"\['clock'\]: expected 2 parts, got None"),
    (
        "dict",
        lambda: {"mark": MARK, "clock": (1, np.zeros(3))},
        r"\['clock'\]\[1\]: expected shape \(2,\), got \(3,\)",
    ),
    ("tuple", lambda: [1, np.zeros(2)], "expected 2 parts"),
    ("tuple", lambda: (1, np.zeros(2), 3), "expected 2 parts"),
    ("tuple", lambda: (-1, np.zeros(2)), r"\[0\]: expected numbers from 0 to"),
]


def check_step_is_refused(kind: str, part: str, value: Any, message: str, **options: Any) -> None:
    factory = partial(MalformedEnv, part, value, **options)
    with MAKERS[kind](factory, seed=1, index=4) as cage:
        samples = bind(cage, factory())
        run(cage, "start_reset", 0)
        for leaf in (samples.env.reward, samples.env.terminated, samples.env.truncated):
            leaf[0] = 1
        samples.env.observation[1] = 7
        before = read_batch(samples, 0, 4)
        with pytest.raises((TypeError, ValueError), match=NAME + message):
            run(cage, "start_row", 0)
        assert read_batch(samples, 0, 4).rewards == before.rewards
        assert read_batch(samples, 0, 4).terminated == before.terminated
        assert_same_tree(
            read_batch(samples, 0, 4).observations, before.observations, "observations"
        )


@pytest.mark.parametrize("kind", sorted(MAKERS))
@pytest.mark.parametrize("what", sorted(MALFORMED_OBSERVATIONS))
def test_observation_of_a_step(kind: str, what: str) -> None:
    value = MALFORMED_OBSERVATIONS[what]
    check_step_is_refused(kind, "observation", value, "observation of step: expected")


@pytest.mark.parametrize("kind", sorted(MAKERS))
@pytest.mark.parametrize("what", sorted(MALFORMED_OBSERVATIONS))
def test_observation_of_a_reset(kind: str, what: str) -> None:
    factory = partial(MalformedEnv, "reset observation", MALFORMED_OBSERVATIONS[what])
    with MAKERS[kind](factory, seed=1, index=4) as cage:
        samples = bind(cage, factory())
        samples.env.observation[0] = 7
        with pytest.raises((TypeError, ValueError), match=NAME + "observation of reset: expected"):
            run(cage, "start_reset", 0)
        assert plain(samples.env.observation, 0, 0).tolist() == [7, 7, 7]


@pytest.mark.parametrize("number", range(len(NESTED)))
def test_observation_out_of_its_space(number: int) -> None:
    layout, value, message = NESTED[number]
    message = "observation of step.*" + message
    check_step_is_refused("Cage", "observation", value, message, layout=layout)


@pytest.mark.parametrize("what", sorted(MALFORMED_REWARDS))
def test_reward(what: str) -> None:
    message = "reward: expected a number"
    check_step_is_refused("Cage", "reward", MALFORMED_REWARDS[what], message)


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
@pytest.mark.parametrize("what", sorted(MALFORMED_FLAGS))
def test_flags(flag: str, what: str) -> None:
    check_step_is_refused("Cage", flag, MALFORMED_FLAGS[what], f"{flag}: expected a bool, got ")


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_results_of_another_form(kind: str) -> None:
    check_step_is_refused(kind, "info", lambda: None, "info: expected a dict, got None")
    message = r"step: expected \(observation, reward, terminated, truncated, info\), got"
    check_step_is_refused(kind, "result", lambda: (np.zeros(3), 0.0, False, {}), message)
    for value in (np.zeros(3), (np.zeros(3), None), (np.zeros(3),)):
        factory = partial(MalformedEnv, "reset result", lambda value=value: value)
        with MAKERS[kind](factory, seed=1, index=4) as cage:
            bind(cage, factory())
            said = r"reset: expected \(observation, info\), got .*; the info is a dict, \{\} if there is none"
            with pytest.raises(TypeError, match=NAME + said):
                run(cage, "start_reset", 0)


class OldGymEnv(gym.Env):  # type: ignore[type-arg]
    """An environment written for Gym before version 0.26."""

    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Discrete(2)

    def reset(self):  # type: ignore[no-untyped-def,override]
        return np.zeros(3, np.float32)

    def step(self, action):  # type: ignore[no-untyped-def,override]
        return np.zeros(3, np.float32), 0.0, False, {}


OLD_RESET = (
    r"\(OldGymEnv\): reset: expected Gymnasium's reset\(\*, seed=None, options=None\), which returns "
    r"\(observation, info\): OldGymEnv\.reset\(\) got an unexpected keyword argument 'seed'"
)


@pytest.mark.parametrize("wrap", [gym.Env.unwrapped.fget, gym.wrappers.RecordEpisodeStatistics])
@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_a_reset_without_a_seed_is_told_the_one_of_gymnasium(kind: str, wrap: Any) -> None:
    with MAKERS[kind](lambda: wrap(OldGymEnv()), seed=1, index=4) as cage:
        bind(cage, OldGymEnv)
        with pytest.raises(TypeError, match="^environment 4 " + OLD_RESET):
            run(cage, "start_reset", 0)


def test_environments_of_a_sync_vector_env_are_named_too() -> None:
    make = VectorEnvFactory(lambda n: gym.vector.SyncVectorEnv([OldGymEnv] * n))
    with VectorizedCage(make, n=2, seeds=[1, 2]) as cage:
        cage.set_samples_buffer(make_samples(OldGymEnv, 4, 2), slice(0, 2))
        with pytest.raises(TypeError, match="^environment 0 " + OLD_RESET):
            run(cage, "start_reset", 0)


class NewResetEnv(OldGymEnv):
    """An environment of which `reset` alone was brought up to date."""

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def,override]
        return np.zeros(3, np.float32), {}


def test_so_are_those_whose_step_returns_four_values() -> None:
    make = VectorEnvFactory(lambda n: gym.vector.SyncVectorEnv([NewResetEnv] * n))
    with VectorizedCage(make, n=2, seeds=[1, 2]) as cage:
        cage.set_samples_buffer(make_samples(NewResetEnv, 4, 2), slice(0, 2))
        run(cage, "start_reset", 0)
        with pytest.raises(TypeError, match=r"^environment 0 \(NewResetEnv\): step: .*five values"):
            run(cage, "start_row", 0)


def test_a_measurement_names_them_as_a_cage_does() -> None:
    with pytest.raises(TypeError, match="^environment 0 " + OLD_RESET):
        plan_sampling(OldGymEnv, 2)
    later = partial(MalformedEnv, "result", lambda: (np.zeros(3), 0.0, False, {}))
    with pytest.raises(TypeError, match=r"step: expected .*; Gymnasium's step returns five values"):
        plan_sampling(later, 2)


@pytest.mark.parametrize("value", [np.float32(2), np.int64(2), 2, True, np.array(2.0)], ids=repr)
def test_rewards_of_every_number_are_taken(value: Any) -> None:
    factory = partial(MalformedEnv, "reward", lambda: value)
    with Cage(factory, seed=1) as cage:
        samples = bind(cage, factory())
        run(cage, "start_reset", 0)
        run(cage, "start_row", 0)
        assert plain(samples.env.reward, 0, 0) == float(value)


def test_checks_are_for_the_first_episode_unless_asked_for() -> None:
    value = MALFORMED_OBSERVATIONS["NaN"]
    # Step 3 is the first of the second episode.
    factory = partial(MalformedEnv, "observation", value, number=3, lengths=2)
    for check in ("first_episode", "always"):
        with Cage(factory, seed=1, index=4, check=check) as cage:
            samples = bind(cage, factory())
            run(cage, "start_reset", 0)
            run(cage, "start_row", 0)
            run(cage, "start_row", 1)
            if check == "always":
                with pytest.raises(ValueError, match=NAME + "observation of step.*got NaN"):
                    run(cage, "start_row", 2)
            else:
                run(cage, "start_row", 2)
                assert np.isnan(plain(samples.env.observation, 3, 0)[1])


def test_the_reset_within_a_step_is_checked() -> None:
    factory = partial(MalformedEnv, "reset observation", lambda: None, number=2, lengths=1)
    with Cage(factory, seed=1, index=4, check="always") as cage:
        samples = bind(cage, factory())
        run(cage, "start_reset", 0)
        samples.env.reward[0] = 7
        with pytest.raises(TypeError, match=NAME + "observation of reset: expected numbers"):
            run(cage, "start_row", 0)
        # The step was made, and ended its episode, before the reset that is at fault.
        assert plain(samples.env.reward, 0, 0) == 1
        assert plain(samples.env.terminated, 0, 0)


def test_well_formed_environments_pass() -> None:
    for layout in ("box", "image", "discrete", "dict", "tuple", "float64", "scalar"):
        with Cage(partial(CountingEnv, 2, layout=layout), check="always") as cage:
            bind(cage, CountingEnv(layout=layout))
            run_rows(cage, 4)
            assert len(cage.collect_completed_trajs()) == 2
