"""Types that the buffer of a sampler gets: what holds the numbers of a space, and what is asked for."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from parllel.agents import NumpyHandler, RandomAgent
from parllel.buffers import Samples, buffer_leaves
from parllel.cages import Cage, stored_example
from parllel.types import BatchSpec
from parllel_patterns import allocate_eval_samples, allocate_samples

LARGE = 2**33 + 5


class Showing(gym.Env[Any, Any]):
    """Show one and the same observation, and as info the numbers of a step."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space[Any], observation: Any, infos: Any = ()) -> None:
        self.observation_space = space
        self._observation = observation
        self._infos = iter(infos)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Show it."""
        super().reset(seed=seed)
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Show it again."""
        return self._observation, 0.0, False, False, next(self._infos, {})


def filled(
    space: spaces.Space[Any], observation: Any, *, evaluate: bool = False, **options: Any
) -> Samples:
    """Return a buffer after a reset and a step."""
    with Cage(lambda: Showing(space, observation)) as cage:
        if evaluate:
            samples = allocate_eval_samples([cage])
        else:
            handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=0))
            samples = allocate_samples([cage], BatchSpec(1, 1), handler, **options)
        cage.set_samples_buffer(samples, slice(0, 1))
        for start in (cage.start_reset, cage.start_row):
            start(0)
            cage.finish_row()
    return samples


WIDE = [
    (spaces.Box(0, 2**40, (2,), np.int64), np.array([LARGE, 5])),
    (spaces.Box(-(2**31) - 1, 0, (2,), np.int64), np.array([-(2**31) - 1, 0])),
    (spaces.Box(-(2**63), 2**63 - 1, (), np.int64), np.int64(2**62 + 1)),
    (spaces.MultiDiscrete([2**40, 3]), np.array([LARGE, 1])),
    (spaces.MultiDiscrete([3, 3], start=[2**33, 0]), np.array([2**33 + 2, 1])),
    (spaces.Discrete(2**40), np.int64(LARGE)),
    (spaces.Discrete(6, start=2**33), LARGE),
]
NARROW = [
    (spaces.Box(-(2**31), 2**31 - 1, (2,), np.int64), np.array([-(2**31), 2**31 - 1])),
    (spaces.MultiDiscrete([2**31, 3]), np.array([2**31 - 1, 1])),
    (spaces.Discrete(6, start=-3), -3),
]


@pytest.mark.parametrize("evaluate", [False, True])
@pytest.mark.parametrize(("space", "observation"), WIDE, ids=str)
def test_integers_beyond_32_bits_arrive_as_they_are(
    space: spaces.Space[Any], observation: Any, evaluate: bool
) -> None:
    samples = filled(space, observation, evaluate=evaluate)
    stored = np.asarray(samples.env.observation)
    assert stored.dtype == np.int64
    np.testing.assert_array_equal(stored[0, 0], observation)
    np.testing.assert_array_equal(np.asarray(samples.env.observation[1])[0], observation)


@pytest.mark.parametrize(("space", "observation"), NARROW, ids=str)
def test_integers_within_32_bits_take_as_many(space: spaces.Space[Any], observation: Any) -> None:
    stored = np.asarray(filled(space, observation).env.observation)
    assert stored.dtype == np.int32
    np.testing.assert_array_equal(stored[0, 0], observation)


def test_each_leaf_of_a_nested_space_has_its_own_type() -> None:
    space = spaces.Dict(
        {
            "id": spaces.Discrete(2**40),
            "parts": spaces.Tuple([spaces.Discrete(4), spaces.Box(0, 1, (2,), np.float64)]),
        }
    )
    example = stored_example(space)
    assert example["id"].dtype == np.int64
    assert example["parts"][0].dtype == np.int32
    assert example["parts"][1].dtype == np.float32
    observation = {"id": LARGE, "parts": (3, np.ones(2))}
    assert np.asarray(filled(space, observation).env.observation.id).tolist() == [[LARGE]]


def test_types_are_asked_for_by_path() -> None:
    space = spaces.Dict({"x": spaces.Box(-9, 9, (2,), np.float64), "n": spaces.Discrete(5)})
    observation = {"x": np.array([1 / 3, 2 / 3]), "n": 4}
    samples = filled(
        space,
        observation,
        env_info={"fuel": 1},
        dtype={"env.observation.x": np.float64, "*.fuel": "float64", "env.reward": float},
    )
    found = {path: leaf.dtype.name for path, leaf in buffer_leaves(samples.env)}
    assert found["observation.x"] == found["env_info.fuel"] == found["reward"] == "float64"
    assert found["observation.n"] == "int32"
    assert samples.agent.observation.x is samples.env.observation.x
    np.testing.assert_array_equal(np.asarray(samples.env.observation.x)[0, 0], observation["x"])


def test_the_agent_is_shown_an_example_of_the_type_that_was_asked_for() -> None:
    shown = []

    class Seeing(RandomAgent):
        def step(self, observation: Any, *, env_indices: Any) -> Any:
            shown.append(observation.dtype)
            return super().step(observation, env_indices=env_indices)

    with Cage(lambda: Showing(spaces.Box(-9, 9, (2,), np.float64), np.zeros(2))) as cage:
        handler = NumpyHandler(Seeing(cage.spaces.action, seed=0))
        allocate_samples([cage], BatchSpec(1, 1), handler, dtype={"env.observation": np.float64})
    assert set(shown) == {np.dtype(np.float64)}


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (
            {"env.observation": np.int8},
            r"env\.observation: dtype: float32 values cannot be stored as int8",
        ),
        ({"env.reward": bool}, r"env\.reward: dtype: float32 values cannot be stored as bool"),
        (
            {"env.env_info.n": np.int16},
            r"env\.env_info\.n: dtype: int64 values cannot be stored as int16",
        ),
        (
            {"env.observatoin": float},
            r"dtype: the rule 'env\.observatoin' matches no path .*'env\.obs",
        ),
        ({"env.reward": object}, r"dtype: env\.reward: expected numbers or booleans, got object"),
        ({"env.reward": "float23"}, r"dtype: env\.reward: .*float23"),
        (
            np.float64,
            "dtype: expected a dict of dtypes keyed by path, .* got <class 'numpy.float64'>",
        ),
    ],
)
def test_types_that_cannot_be_are_refused(dtype: Any, message: str) -> None:
    space = spaces.Box(-9, 9, (2,), np.float64)
    with pytest.raises(ValueError, match=message):
        filled(space, np.zeros(2), env_info={"n": 0}, dtype=dtype)


def run(infos: list[dict[str, Any]], **options: Any) -> Samples:
    """Return a buffer after a step with each of these infos."""
    space = spaces.Box(-9, 9, ())
    with Cage(lambda: Showing(space, np.float32(0), infos)) as cage:
        handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=0))
        samples = allocate_samples([cage], BatchSpec(len(infos), 1), handler, **options)
        cage.set_samples_buffer(samples, slice(0, 1))
        cage.start_reset()
        cage.finish_row()
        for t in range(len(infos)):
            cage.start_row(t)
            cage.finish_row()
    return samples


def test_integers_of_infos_keep_64_bits() -> None:
    samples = run([{"x": 3}, {"x": np.int64(LARGE)}, {"x": -LARGE}, {"x": True}], env_info={"x": 0})
    assert np.asarray(samples.env.env_info.x)[:, 0].tolist() == [3, LARGE, -LARGE, 1]


@pytest.mark.parametrize("value", [0.5, np.float32(2.0), np.array(0.5), [1, 2.5]], ids=repr)
def test_what_is_no_integer_is_refused_where_the_example_is_one(value: Any) -> None:
    with pytest.raises(
        TypeError, match=r"column 0 .*info\['a'\]\['x'\]: expected integers, because"
    ):
        run([{"a": {"x": 3}}, {"a": {"x": value}}], env_info={"a": {"x": 0}})


@pytest.mark.parametrize("value", [None, "1", [None], np.array(None), len], ids=repr)
@pytest.mark.parametrize("example", [0.0, 0])
def test_what_is_no_number_is_refused(value: Any, example: float) -> None:
    with pytest.raises(TypeError, match=r"column 0 .*info\['x'\]: expected numbers, got"):
        run([{"x": 3}, {"x": value}], env_info={"x": example})


def test_flags_of_infos_take_flags_and_0_and_1() -> None:
    samples = run([{"x": True}, {"x": np.False_}, {"x": 1}], env_info={"x": False})
    assert np.asarray(samples.env.env_info.x)[:, 0].tolist() == [True, False, True]
    with pytest.raises(TypeError, match="expected integers"):
        run([{"x": 0.5}], env_info={"x": False})
