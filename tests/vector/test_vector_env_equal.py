"""The same numbers, step by step, as gymnasium's SyncVectorEnv, whatever is called in between."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from vector_placements import PLACEMENTS

from parllel.testing import CountingEnv
from parllel.vector import VectorEnv, make_vec

N = 5
MODES = tuple(AutoresetMode)


class VariedInfos(gym.Wrapper[Any, Any, Any, Any]):
    """Infos of every type, some of them now and then, and the options of the last reset."""

    def __init__(self, env: gym.Env[Any, Any], varied: bool) -> None:
        super().__init__(env)
        self.varied = varied
        self.options: Any = None
        self.k = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.options = options
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "options": str(options)}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.k += 1
        if not self.varied:
            return (
                observation,
                reward,
                terminated,
                truncated,
                {"x": np.float64(self.k / 3), "k": self.k},
            )
        info["action"] = action
        info["deep"] = {"k": self.k, "deeper": {"even": self.k % 2 == 0}}
        if self.k % 3 == 0:
            info["third"] = np.float32(self.k)
            info["deep"]["word"] = "third"
        if self.k % 7 == 0:
            info["nothing"] = None
        return observation, reward, terminated, truncated, info


def make(lengths: tuple[int, ...], varied: bool, **options: Any) -> gym.Env[Any, Any]:
    env = CountingEnv(lengths, random_lengths=True, end="alternate", **options)
    return VariedInfos(env, varied)


def factories(layout: str = "box", varied: bool = True, **options: Any) -> list[Any]:
    lengths = ((3, 1, 4), (1,), (9, 2), (2, 6), (5, 1))
    return [partial(make, one, varied, layout=layout, **options) for one in lengths]


def same(one: Any, other: Any, what: str = "") -> None:
    """Compare trees with their types and dtypes; batches of observations and infos."""
    assert type(one) is type(other), what
    if isinstance(one, dict):
        assert one.keys() == other.keys(), what
        for key, value in one.items():
            same(value, other[key], f"{what}.{key}")
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(other), what
        for k, (value, expected) in enumerate(zip(one, other, strict=True)):
            same(value, expected, f"{what}[{k}]")
    elif isinstance(one, np.ndarray) and one.dtype == object:
        assert one.shape == other.shape, what
        for k, (value, expected) in enumerate(zip(one, other, strict=True)):
            same(value, expected, f"{what}[{k}]")
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, what
        np.testing.assert_array_equal(one, other, what)
    else:
        assert one == other, what


CALLS = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 2**20)),
    st.tuples(st.just("step"), st.integers(0, 2**20)),
    st.tuples(st.just("step"), st.integers(0, 2**20)),
    st.tuples(st.just("reset"), st.none() | st.integers(0, 2**20)),
    st.tuples(st.just("options"), st.integers(0, 9)),
    st.tuples(st.just("some"), st.lists(st.booleans(), min_size=N, max_size=N).filter(any)),
    st.tuples(st.just("set"), st.integers(0, 9)),
)


def call(env: Any, what: str, value: Any) -> Any:
    """Make one call, with new arguments, as environments may keep or change them."""
    if what == "step":
        space = env.action_space
        space.seed(value)
        return env.step(space.sample())
    if what == "reset":
        return env.reset(seed=value)
    if what == "options":
        seeds = [value + i if i % 2 else None for i in range(N)]
        return env.reset(seed=seeds, options={"k": value})
    if what == "some":
        return env.reset(options={"reset_mask": np.array(value)})
    env.set_attr("gravity", [float(value + i) for i in range(N)])
    return env.get_attr("gravity"), env.call("get_wrapper_attr", "k"), env.get_attr("lengths")


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("mode", MODES, ids=[mode.value for mode in MODES])
@pytest.mark.few(4)
def test_any_calls_have_the_results_of_a_sync_vector_env(
    mode: AutoresetMode, placement: str
) -> None:
    env = VectorEnv(factories(), autoreset_mode=mode, **PLACEMENTS[placement])
    reference = SyncVectorEnv(factories(), autoreset_mode=mode)
    ended = np.zeros(N, bool)

    # Both live through all examples, so that starting workers costs once. They stay equal, or the test fails.
    @settings(max_examples=25, database=None)
    @given(st.integers(0, 2**20), st.lists(CALLS, min_size=5, max_size=30))
    def check(seed: int, calls: list[tuple[str, Any]]) -> None:
        same(env.reset(seed=seed), reference.reset(seed=seed))
        ended[:] = False
        for what, value in calls:
            if what == "step" and mode == AutoresetMode.DISABLED and ended.any():
                same(call(env, "some", ended.tolist()), call(reference, "some", ended.tolist()))
                ended[:] = False
            found, expected = call(env, what, value), call(reference, what, value)
            same(found, expected, what)
            if what == "step":
                ended[:] = found[2] | found[3]
            elif what == "some":
                ended[np.array(value)] = False
            elif what != "set":
                ended[:] = False

    with env:
        check()
    reference.close()


@pytest.mark.parametrize("layout", ["float64", "scalar", "image", "discrete", "dict", "tuple"])
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(("mode", "copy"), [*zip(MODES, [True, False, True], strict=True)], ids=str)
@pytest.mark.few(16)
def test_observations_of_every_form(
    layout: str, placement: str, mode: AutoresetMode, copy: bool
) -> None:
    makes = factories(layout, varied=False)
    reference = SyncVectorEnv(makes, autoreset_mode=mode)
    with VectorEnv(makes, autoreset_mode=mode, copy=copy, **PLACEMENTS[placement]) as env:
        for name in ("observation_space", "action_space"):
            assert getattr(env, name) == getattr(reference, name)
            assert getattr(env, f"single_{name}") == getattr(reference, f"single_{name}")
        same(env.reset(seed=3), reference.reset(seed=3))
        for k in range(30):
            found = call(env, "step", k)
            same(found, call(reference, "step", k))
            assert env.observation_space.contains(found[0])
            ended = (found[2] | found[3]).tolist()
            if mode == AutoresetMode.DISABLED and any(ended):
                same(call(env, "some", ended), call(reference, "some", ended))
    reference.close()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2,), np.float32),
        spaces.Box(-1, 1, (), np.float64),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(2),
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (2,), np.float32)),
        spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (1,), np.float32)]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_actions_of_every_form_arrive(space: spaces.Space[Any]) -> None:
    makes = factories(varied=True, action_space=space)
    reference = SyncVectorEnv(makes)
    with VectorEnv(makes, n_workers=1, n_main=2, start_method="fork") as env:
        same(env.reset(seed=1), reference.reset(seed=1))
        for k in range(12):
            space = env.action_space
            space.seed(k)
            actions = space.sample()
            found, expected = env.step(actions), reference.step(actions)
            same(found[:4], expected[:4])
    reference.close()


def test_actions_are_not_clipped() -> None:
    # The other library clips them, if at all. HalfCheetah's cost has the action as it came.
    reference = gym.make_vec("HalfCheetah-v5", 2, "sync")
    with make_vec("HalfCheetah-v5", 2, n_workers=1, n_main=1, start_method="fork") as env:
        same(env.reset(seed=0), reference.reset(seed=0))
        actions = np.full((2, 6), 3.0, np.float32)
        for _ in range(3):
            same(env.step(actions), reference.step(actions))
    reference.close()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Taxi-v4", "Blackjack-v1"])
def test_environments_of_gymnasium(env_id: str) -> None:
    reference = gym.make_vec(env_id, 3, "sync")
    with make_vec(env_id, 3, n_workers=1, n_main=1, start_method="fork") as env:
        same(env.reset(seed=5), reference.reset(seed=5))
        for k in range(60):
            same(call(env, "step", k), call(reference, "step", k))
    reference.close()
