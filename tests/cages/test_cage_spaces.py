from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from cage_makers import MAKERS, forked
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parllel.buffers import Field, allocate
from parllel.cages import Cage, StepResult, TrajInfo, example_of
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import record_columns, run
from parllel.testing.cages.row_reference import (
    assert_same_batches,
    draw_actions,
    make_samples,
    plain,
    simulate,
)
from parllel.testing.dummy_envs import LAYOUTS
from parllel.types import BatchSpec

T = 6
ACTION_SPACES = {
    "discrete": spaces.Discrete(5),
    "discrete from -3": spaces.Discrete(5, start=-3),
    "multi-discrete": spaces.MultiDiscrete([3, 9]),
    "multi-binary": spaces.MultiBinary((2, 2)),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "box of one": spaces.Box(-1, 1, (1,), np.float32),
    "scalar box": spaces.Box(-1, 1, (), np.float32),
    "float64 box": spaces.Box(-1, 1, (2, 3), np.float64),
    "integer box": spaces.Box(-9, 9, (2,), np.int16),
    "dict": spaces.Dict(
        {
            "b": spaces.Discrete(3, start=1),
            "a": spaces.Dict({"c": spaces.Box(0, 1, (2,)), "d": spaces.MultiBinary(2)}),
        }
    ),
    "tuple": spaces.Tuple((spaces.MultiDiscrete([4]), spaces.Tuple((spaces.Discrete(7),)))),
}


@pytest.mark.parametrize("kind", sorted(MAKERS))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_observations_of_every_layout(kind: str, layout: str) -> None:
    factory = partial(CountingEnv, (2, 3), end="truncated", layout=layout, reuse=True)
    _compare_with_loop(kind, factory)


@pytest.mark.parametrize("kind", sorted(MAKERS))
@pytest.mark.parametrize("name", sorted(ACTION_SPACES))
def test_actions_of_every_space(kind: str, name: str) -> None:
    factory = partial(CountingEnv, (2, 3), action_space=ACTION_SPACES[name])
    _compare_with_loop(kind, factory)


def _compare_with_loop(kind: str, factory: Any) -> None:
    actions = draw_actions(factory().action_space, 0, 2, T)
    samples = make_samples(factory(), T, 2)
    with MAKERS[kind](factory, seed=3) as cage:
        cage.set_samples_buffer(samples, slice(1, 2))
        (found,) = record_columns(cage, samples, [actions])
        assert all(cage.spaces.action.contains(action) for action in cage.actions)
    assert_same_batches(found, simulate(factory(), 3, actions))


@settings(
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    random_lengths=st.booleans(),
    end=st.sampled_from(["terminated", "truncated", "both", "alternate"]),
    automatic=st.booleans(),
    seed=st.integers(0, 2**64),
    T=st.integers(1, 7),
    discount=st.floats(0.5, 1.0),
)
def test_rows_do_not_depend_on_the_place(
    lengths: list[int],
    random_lengths: bool,
    end: str,
    automatic: bool,
    seed: int,
    T: int,
    discount: float,
) -> None:
    factory = partial(
        CountingEnv, lengths, random_lengths=random_lengths, end=end, layout="tuple", reuse=True
    )
    actions = draw_actions(spaces.Discrete(4), 1, 3, T)
    expected = simulate(factory(), seed, actions, automatic=automatic, discount=discount)
    for make in MAKERS.values():
        samples = make_samples(factory(), T, 1)
        options = {"reset_automatically": automatic, "traj_info": partial(TrajInfo, discount)}
        with make(factory, seed=seed, **options) as cage:
            cage.set_samples_buffer(samples, slice(0, 1))
            (found,) = record_columns(cage, samples, [actions], automatic=automatic, first=0)
        assert_same_batches(found, expected)


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_buffers_narrow_float64_unless_told_otherwise(kind: str) -> None:
    class Third(CountingEnv):
        def _observation(self) -> Any:
            return np.full(3, 1 / 3)

    narrow = make_samples(CountingEnv(layout="float64"), 2, 1)
    wide = make_samples(CountingEnv(layout="float64"), 2, 1)
    field = Field(np.zeros(3), padding=1, dtype=np.float64)
    wide = wide._replace(env=wide.env._replace(observation=allocate(field, BatchSpec(2, 1))))
    with MAKERS[kind](lambda: Third(layout="float64"), seed=3) as cage:
        for samples, expected in ((narrow, np.float32(1 / 3)), (wide, 1 / 3)):
            cage.set_samples_buffer(samples, slice(0, 1))
            run(cage, "start_reset", 0)
            assert plain(samples.env.observation, 0, 0).tolist() == [expected] * 3


def test_example_of_nests_zeros_as_the_space_does() -> None:
    example = example_of(
        spaces.Dict(
            {
                "image": spaces.Box(0, 255, (2, 2), np.uint8),
                "pair": spaces.Tuple((spaces.Discrete(3, start=1), spaces.MultiBinary(2))),
            }
        )
    )
    assert list(example) == ["image", "pair"]
    assert (example["image"].shape, example["image"].dtype) == ((2, 2), np.uint8)
    number, flags = example["pair"]
    assert (number, number.dtype) == (0, np.int64)
    assert (flags.tolist(), flags.dtype) == ([0, 0], np.int8)
    with pytest.raises(TypeError, match="expected Box, Discrete, MultiDiscrete"):
        example_of(spaces.Dict({"text": spaces.Text(5)}))


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_a_missing_info_names_what_is_there(kind: str) -> None:
    class Silent(CountingEnv):
        def _info(self) -> dict[str, Any]:
            return {"note": "", "half": 0.0}

    samples = make_samples(CountingEnv(), 2, 1)
    with MAKERS[kind](Silent, seed=3) as cage:
        cage.set_samples_buffer(samples, slice(0, 1))
        run(cage, "start_reset", 0)
        with pytest.raises(KeyError, match=r"info\['step'\]: missing, .*\['half', 'note'\]"):
            run(cage, "start_row", 0)


def test_traj_info_tells_what_is_worth_logging() -> None:
    class Coloured(TrajInfo):
        def __init__(self) -> None:
            super().__init__(0.5)
            self.colour = "red"
            self._hidden = 1

    traj = Coloured()
    for reward in (1.0, 2.0):
        traj.step(None, None, reward, False, False, {})
    expected = {"length": 2, "return": 3.0, "discounted_return": 2.0, "colour": "red"}
    assert traj.as_dict() == expected
    assert repr(traj) == f"Coloured({expected})"


def test_a_result_says_what_it_holds() -> None:
    result = StepResult({"reward": 1.0}, ("observation",))
    assert repr(result) == "StepResult({'reward': 1.0}, written elsewhere: ['observation'])"


def test_arguments_of_the_constructors() -> None:
    with pytest.raises(ValueError, match=r"check: expected one of .*, got 'no'"):
        Cage(CountingEnv, check="no")
    for timeout_s in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="timeout_s: expected a positive number"):
            forked(CountingEnv, timeout_s=timeout_s)


@pytest.mark.parametrize("kind", sorted(MAKERS))
@pytest.mark.parametrize("factory", ["CartPole-v1", CountingEnv()])
def test_what_is_no_factory_is_refused_at_once(kind: str, factory: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a function that makes a gymnasium\.Env, got"):
        MAKERS[kind](factory)


@pytest.mark.parametrize("kind", sorted(MAKERS))
@pytest.mark.parametrize(
    ("traj_info", "message"),
    [(TrajInfo(), "a class or function"), (dict, r"a function that returns a TrajInfo, got \{\}")],
)
def test_what_makes_no_traj_info_is_refused_at_once(
    kind: str, traj_info: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=f"traj_info: expected {message}"):
        MAKERS[kind](CountingEnv, traj_info=traj_info)


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_a_factory_that_makes_no_environment(kind: str) -> None:
    with pytest.raises(
        TypeError, match=r"expected a gymnasium\.Env, got None, which has no 'reset'"
    ):
        _made(kind, lambda: None)


def _made(kind: str, factory: Any) -> None:
    with MAKERS[kind](factory) as cage:
        _ = cage.spaces


def test_arrays_of_numpy_cannot_take_results_of_another_process() -> None:
    with forked(CountingEnv, seed=3) as cage:
        with pytest.raises(TypeError, match="out_obs: expected an Array or node, got array"):
            cage.reset_async(out_obs=np.zeros(3, np.float32))
        cage.reset_async()
        assert cage.await_step().observation[1:].tolist() == [0, 0]
