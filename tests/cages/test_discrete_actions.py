"""Environments get Discrete actions as their space samples them: numpy scalars of its dtype."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from cage_makers import ONE_OF_EACH, arrived
from gymnasium import spaces

from parllel.buffers import Field, allocate
from parllel.cages import VectorizedCage
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import run, run_rows
from parllel.testing.cages.row_reference import make_samples
from parllel.types import BatchSpec

T = 5
SPACES = {
    "from zero": spaces.Discrete(4),
    "from below zero": spaces.Discrete(3, start=-1),
    "more than are made beforehand": spaces.Discrete(5000),
    "narrow": spaces.Discrete(4, dtype=np.uint8),
}


def numbers_of(space: spaces.Discrete, shape: tuple[int, ...]) -> Any:
    first = int(space.start)
    return np.random.default_rng(0).integers(first, first + int(space.n), shape)


@pytest.mark.parametrize("kind", ONE_OF_EACH)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_rows_pass_what_the_space_samples(kind: str, space: spaces.Discrete) -> None:
    factory = partial(CountingEnv, (2, 3), action_space=space)
    kept = type(space.sample())
    with ONE_OF_EACH[kind](factory) as cage:
        samples = make_samples(factory(), T, cage.n)
        actions = numbers_of(space, (T, cage.n))
        samples.agent.action[...] = actions
        cage.set_samples_buffer(samples, slice(0, cage.n))
        run_rows(cage, T)
        for column, found in enumerate(arrived(cage)):
            assert [type(one) for one in found] == [kept] * T
            assert found == actions[:, column].tolist()
            assert all(space.contains(one) for one in found)


@pytest.mark.parametrize("kind", ["Cage", "ProcessCage"])
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_plain_face_passes_them_too(kind: str, space: spaces.Discrete) -> None:
    with ONE_OF_EACH[kind](partial(CountingEnv, action_space=space)) as cage:
        cage.reset_async()
        cage.await_step()
        for action in (int(space.start), np.array(int(space.start) + 1)):
            cage.step_async(action)
            cage.await_step()
        assert [type(one) for one in cage.actions] == [type(space.sample())] * 2
        assert cage.actions == [int(space.start), int(space.start) + 1]


@pytest.mark.parametrize("kind", ["Cage", "ProcessCage"])
@pytest.mark.parametrize("action", [0.5, np.array(1.0), np.float32(1.5)], ids=repr)
def test_the_plain_face_does_not_make_whole_numbers_of_others(kind: str, action: Any) -> None:
    def step(cage: Any) -> None:
        cage.step_async(action)
        cage.await_step()

    with ONE_OF_EACH[kind](partial(gym.make, "CartPole-v1")) as cage:
        cage.reset_async()
        cage.await_step()
        with pytest.raises(Exception, match=rf"{float(action)} .* invalid"):
            step(cage)


class Rounding(gym.Env[Any, Any]):
    """Environment whose float32 state is rounded otherwise if an action is an int."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.state = np.float32(0.1)
        return np.array([self.state], np.float64), {}

    def step(self, action: Any) -> Any:
        self.state = self.state * np.float32(0.7) + np.float32(0.3) * action
        return np.array([self.state], np.float64), 0.0, False, False, {}


def test_an_environment_plays_as_in_a_vector_environment_of_gymnasium() -> None:
    actions = np.random.default_rng(0).integers(0, 3, (20, 2))
    vector = gym.vector.SyncVectorEnv([Rounding] * 2)
    expected = [vector.reset(seed=3)[0], *(vector.step(row)[0].copy() for row in actions)]
    samples = make_samples(Rounding(), len(actions), 2, info=False)
    samples.agent.action[...] = actions
    with VectorizedCage([Rounding] * 2, seeds=[3, 4]) as cage:
        cage.set_samples_buffer(samples, slice(0, 2))
        run_rows(cage, len(actions))
    found = np.asarray(samples.env.observation)
    np.testing.assert_array_equal(found, np.array(expected[:-1]).astype(found.dtype))


def test_what_is_no_whole_number_is_left_to_the_environment_to_refuse() -> None:
    factory = partial(gym.make, "CartPole-v1")
    samples = make_samples(factory(), T, 2, info=False)
    action = allocate(Field(np.float32(0)), BatchSpec(T, 2))
    samples = samples._replace(agent=samples.agent._replace(action=action))
    with ONE_OF_EACH["VectorizedCage"](factory) as cage:
        cage.set_samples_buffer(samples, slice(0, 2))
        run(cage, "start_reset", 0)
        action[...] = 0.5
        with pytest.raises(AssertionError, match=r"0\.5 .* invalid"):
            run(cage, "start_row", 0)
