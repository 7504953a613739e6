"""What lies outside a Box is clipped on its way to the environment, and stays as drawn in the batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from cage_makers import ONE_OF_EACH, arrived
from gymnasium import spaces

from parllel.buffers import Field, Samples, allocate, buffer_map
from parllel.cages import Cage, TrajInfo
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import run, run_rows
from parllel.testing.cages.row_reference import make_samples
from parllel.types import BatchSpec

T, INF = 5, np.inf
LOW, HIGH = np.array([-1.0, -0.5]), np.array([0.1, 2.0])
BOXES = {
    "float32": (spaces.Box(-1, 1, (2,)), np.float32),
    "float32, drawn in float64": (spaces.Box(-1, 1, (2,)), np.float64),
    "float64, stored in float32": (spaces.Box(LOW, HIGH, dtype=np.float64), np.float32),
    "each its own bounds": (
        spaces.Box(LOW.astype(np.float32), HIGH.astype(np.float32)),
        np.float32,
    ),
    "bounded below": (spaces.Box(0, INF, (2, 3)), np.float32),
    "bounded above": (spaces.Box(-INF, 0, (2,)), np.float32),
    "some bounded": (
        spaces.Box(np.array([-1, -INF], np.float32), np.array([INF, 1], np.float32)),
        np.float32,
    ),
    "unbounded": (spaces.Box(-INF, INF, (2,)), np.float32),
    "scalar": (spaces.Box(-1, 1, ()), np.float32),
    "whole numbers that would wrap": (spaces.Box(-3, 3, (2,), np.int8), np.int64),
}


def drawn(space: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return actions of which many lie outside of the bounds; whole numbers far outside."""
    generator = np.random.default_rng(0)
    scale = 300 if np.issubdtype(dtype, np.integer) else 2
    return (scale * generator.normal(size=(*shape, *space.shape))).astype(dtype)


def clipped(space: Any, actions: Any) -> Any:
    """Return what an environment gets, one number after the other."""
    low, high = np.broadcast_arrays(space.low, space.high)
    numbers = [
        min(max(number, lowest), highest)
        for cell in actions.reshape(-1, *space.shape)
        for number, lowest, highest in zip(cell.flat, low.flat, high.flat, strict=True)
    ]
    return np.array(numbers).reshape(actions.shape).astype(space.dtype)


def with_actions(samples: Samples, space: Any, dtype: Any, n: int) -> Samples:
    field = Field(np.zeros(space.shape, dtype), dtype=dtype)
    action = allocate(field, BatchSpec(T, n), storage="managed")
    return samples._replace(agent=samples.agent._replace(action=action))


# Whose steppers the other two have, too.
@pytest.mark.parametrize("kind", ["ProcessCage", "VectorizedCage"])
@pytest.mark.parametrize(("space", "dtype"), BOXES.values(), ids=BOXES)
def test_environments_get_actions_inside_their_box(kind: str, space: Any, dtype: Any) -> None:
    factory = partial(CountingEnv, (2, 3), action_space=space)
    with ONE_OF_EACH[kind](factory) as cage:
        samples = with_actions(make_samples(factory(), T, cage.n), space, dtype, cage.n)
        actions = drawn(space, dtype, (T, cage.n))
        samples.agent.action[...] = actions
        cage.set_samples_buffer(samples, slice(0, cage.n))
        run_rows(cage, T)
        expected = clipped(space, actions)
        for column, found in enumerate(arrived(cage)):
            assert [one.dtype for one in found] == [space.dtype] * T
            assert [np.shape(one) for one in found] == [space.shape] * T
            np.testing.assert_array_equal(np.array(found), expected[:, column])
            assert all(space.contains(np.asarray(one)) for one in found)
    # What the agent drew is what likelihoods are of.
    np.testing.assert_array_equal(np.asarray(samples.agent.action), actions)


@pytest.mark.parametrize("kind", ["Cage", "ProcessCage"])
def test_the_plain_face_takes_a_number_for_a_scalar_box(kind: str) -> None:
    with ONE_OF_EACH[kind](partial(CountingEnv, action_space=spaces.Box(-1, 1, ()))) as cage:
        cage.reset_async()
        cage.await_step()
        cage.step_async(2.5)
        cage.await_step()
        (action,) = cage.actions
        assert (np.shape(action), float(action), action.dtype) == ((), 1.0, np.float32)


@pytest.mark.parametrize("kind", ["Cage", "ProcessCage"])
def test_the_plain_face_clips_as_rows_do(kind: str) -> None:
    space = spaces.Dict({"move": spaces.Box(-1, 1, (2,)), "jump": spaces.Discrete(2)})
    with ONE_OF_EACH[kind](partial(CountingEnv, action_space=space)) as cage:
        cage.reset_async()
        cage.await_step()
        given = {"move": np.array([-3.0, 0.25], np.float32), "jump": 1}
        cage.step_async(given)
        cage.await_step()
        (action,) = cage.actions
        assert (action["move"].tolist(), action["jump"]) == ([-1.0, 0.25], 1)
        assert given["move"].tolist() == [-3.0, 0.25]  # type: ignore[attr-defined]


def test_boxes_inside_of_trees_are_clipped_too() -> None:
    space = spaces.Tuple((spaces.Box(0, 1, (2,)), spaces.MultiDiscrete([3, 3])))
    factory = partial(CountingEnv, action_space=space)
    samples = make_samples(factory(), T, 1)
    with Cage(factory, seed=3) as cage:
        cage.set_samples_buffer(samples, slice(0, 1))
        run(cage, "start_reset", 0)
        samples.agent.action[0] = (np.array([-1.0, 9.0]), np.array([2, 1]))
        run(cage, "start_row", 0)
        ((move, choices),) = cage.actions
        assert (move.tolist(), choices.tolist()) == ([0.0, 1.0], [2, 1])


def test_nan_reaches_the_environment() -> None:
    # It lies neither inside nor outside: hiding it would hide what is wrong with the agent.
    space = spaces.Box(-1, 1, (1,))
    factory = partial(CountingEnv, action_space=space)
    samples = make_samples(factory(), T, 1)
    with Cage(factory, seed=3) as cage:
        cage.set_samples_buffer(samples, slice(0, 1))
        run(cage, "start_reset", 0)
        samples.agent.action[...] = np.nan
        with pytest.raises(ValueError, match="reward: expected a number, got NaN"):
            run(cage, "start_row", 0)


def test_a_traj_info_is_told_what_the_environment_got() -> None:
    class Moves(TrajInfo):
        def __init__(self) -> None:
            super().__init__()
            self.moves: list[float] = []

        def step(self, observation: Any, action: Any, *rest: Any) -> None:
            super().step(observation, action, *rest)
            self.moves.append(float(action[0]))

    factory = partial(CountingEnv, 2, action_space=spaces.Box(-1, 1, (1,)))
    samples = make_samples(factory(), T, 1)
    with Cage(factory, seed=3, traj_info=Moves) as cage:
        cage.set_samples_buffer(samples, slice(0, 1))
        run(cage, "start_reset", 0)
        samples.agent.action[...] = np.array([[[-7]], [[0.5]], [[0]], [[0]], [[0]]])
        for t in range(2):
            run(cage, "start_row", t)
        (traj,) = cage.collect_completed_trajs()
        assert traj.moves == [-1.0, 0.5]


@pytest.mark.parametrize("kind", ["VectorizedCage", "SynchronizedProcessCage"])
def test_choices_out_of_range_are_left_to_the_environment_to_refuse(kind: str) -> None:
    # There is no nearest choice: gymnasium's environments raise, and so do cages with them.
    factory = partial(gym.make, "CartPole-v1")
    with ONE_OF_EACH[kind](factory) as cage:
        samples = make_samples(factory(), T, 2, info=False)
        cage.set_samples_buffer(samples, slice(0, 2))
        run(cage, "start_reset", 0)
        buffer_map(lambda leaf: leaf.__setitem__(..., 2), samples.agent.action)
        with pytest.raises(AssertionError, match="invalid"):
            run(cage, "start_row", 0)
