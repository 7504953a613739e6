"""Stable-Baselines3's VecEnv: the numbers of a DummyVecEnv, and its own wrappers and helpers on top."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vector_placements import PLACEMENTS

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)

from parllel.errors import ClosedError, WorkerDiedError, WrongStateError
from parllel.testing import CountingEnv
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel.vector import VecEnv

N = 4
ACTIONS = np.ones(N, int)


class Options(gym.Wrapper[Any, Any, Any, Any]):
    """Shows the options of the last reset, and keeps one dict for all infos."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.kept: dict[str, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "options": options}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        *results, info = self.env.step(action)
        self.kept.clear()
        self.kept.update(info)
        return (*results, self.kept)  # type: ignore[return-value]


def make(lengths: tuple[int, ...], **options: Any) -> gym.Env[Any, Any]:
    return Options(CountingEnv(lengths, random_lengths=True, end="alternate", **options))


def factories(**options: Any) -> list[Any]:
    return [partial(make, one, **options) for one in ((3, 1, 4), (1,), (9, 2), (2, 6))]


@pytest.fixture(params=PLACEMENTS)
def placement(request: pytest.FixtureRequest) -> dict[str, Any]:
    options: dict[str, Any] = PLACEMENTS[request.param]
    return options


def same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            same(value, other[key])
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(other)
        for value, expected in zip(one, other, strict=True):
            same(value, expected)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert type(one) is type(other)
        assert one == other


CALLS = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 2**20)),
    st.tuples(st.just("step"), st.integers(0, 2**20)),
    st.tuples(st.just("step"), st.integers(0, 2**20)),
    st.tuples(st.just("reset"), st.booleans()),
    st.tuples(st.just("seed"), st.integers(0, 2**20)),
    st.tuples(st.just("options"), st.integers(0, 3)),
    st.tuples(st.just("list"), st.integers(0, 3)),
    st.tuples(st.just("set"), st.integers(0, N - 1)),
)


def call(env: Any, what: str, value: Any) -> Any:
    if what == "step":
        rng = np.random.default_rng(value)
        return (*env.step(rng.integers(0, 4, N)), env.reset_infos)
    if what == "seed":
        return env.seed(value)
    if what == "options":
        return env.set_options({"k": value} if value else None)
    if what == "list":
        return env.set_options([{"k": i} if (i + value) % 2 else {} for i in range(N)])
    if what == "set":
        env.set_attr("mark", value, indices=value)
        env.env_method("get_wrapper_attr", "gravity", indices=[value, 0])
        return env.get_attr("mark", indices=[value]), env.get_attr("gravity", indices=range(value))
    return env.reset(), env.reset_infos


@pytest.mark.parametrize("layout", ["box", "image"])
@pytest.mark.few(3)
def test_any_calls_have_the_results_of_a_dummy_vec_env(
    placement: dict[str, Any], layout: str
) -> None:
    env = VecEnv(factories(layout=layout), **placement)
    reference = DummyVecEnv(factories(layout=layout))

    # Both live through all examples, so that starting workers costs once.
    @settings(max_examples=20, database=None)
    @given(st.integers(0, 2**20), st.lists(CALLS, min_size=5, max_size=25))
    def check(seed: int, calls: list[tuple[str, Any]]) -> None:
        for what, value in (("seed", seed), ("reset", True), *calls):
            same(call(env, what, value), call(reference, what, value))

    with env:
        assert env.observation_space == reference.observation_space
        assert env.action_space == reference.action_space
        assert env.render_mode == reference.render_mode
        assert env.metadata == reference.metadata
        check()
    reference.close()


@pytest.mark.parametrize("kind", ["dict", "tuple"])
def test_nested_actions_come_as_a_list(placement: dict[str, Any], kind: str) -> None:
    parts = {"a": gym.spaces.Discrete(4), "b": gym.spaces.Box(-1, 1, (2,), np.float32)}
    space: Any = gym.spaces.Dict(parts) if kind == "dict" else gym.spaces.Tuple(parts.values())
    makes = [partial(CountingEnv, action_space=space)] * N
    reference = DummyVecEnv(makes)
    with VecEnv(makes, **placement) as env:
        for one in (env, reference):
            one.reset()
        space.seed(1)
        for _ in range(5):
            actions: Any = [space.sample() for _ in range(N)]
            same(env.step(actions)[1], reference.step(actions)[1])
    reference.close()


def wrapped(env: Any) -> Any:
    return VecFrameStack(VecNormalize(VecMonitor(env), clip_obs=5.0), 3)


def test_wrappers_of_stable_baselines(placement: dict[str, Any]) -> None:
    makes = [partial(gym.make, "CartPole-v1")] * N
    mine, theirs = wrapped(VecEnv(makes, **placement)), wrapped(DummyVecEnv(makes))
    for env in (mine, theirs):
        env.seed(3)
    same(mine.reset(), theirs.reset())
    ends = 0
    for k in range(60):
        actions = np.array([k % 2, 1, 0, (k // 2) % 2])
        found, expected = mine.step(actions), theirs.step(actions)
        same(found[:3], expected[:3])
        for one, other in zip(found[3], expected[3], strict=True):
            assert one.keys() == other.keys()
            assert one["TimeLimit.truncated"] is other["TimeLimit.truncated"]
            if "episode" in other:
                ends += 1
                assert (one["episode"]["r"], one["episode"]["l"]) == (
                    other["episode"]["r"],
                    other["episode"]["l"],
                )
                same(one["terminal_observation"], other["terminal_observation"])
    assert ends
    mine.close()
    theirs.close()


def test_made_by_their_helper(placement: dict[str, Any]) -> None:
    env = make_vec_env("CartPole-v1", N, seed=3, vec_env_cls=VecEnv, vec_env_kwargs=placement)  # type: ignore[arg-type]
    reference = make_vec_env("CartPole-v1", N, seed=3)
    same(env.reset(), reference.reset())
    assert env.env_is_wrapped(Monitor) == [True] * N
    assert env.env_is_wrapped(Options, indices=[0]) == [False]
    env.close()
    reference.close()


def test_order_of_calls(placement: dict[str, Any]) -> None:
    with VecEnv([CountingEnv] * N, **placement) as env:
        with pytest.raises(WrongStateError, match="stepped before a reset"):
            env.step_async(ACTIONS)
        env.reset()
        with pytest.raises(WrongStateError, match="call step_async first"):
            env.step_wait()
        env.step_async(ACTIONS)
        with pytest.raises(WrongStateError, match="was not awaited"):
            env.step_async(ACTIONS)
        # As SB3's interface says: a reset drops the step in progress.
        env.reset()
        with pytest.raises(WrongStateError, match="call step_async first"):
            env.step_wait()
        with pytest.raises(ValueError, match=r"actions: expected shape \(4,\)"):
            env.step(np.ones((N, 1), int))
        env.step_async(ACTIONS)
    env.close()
    for late in (
        env.reset,
        lambda: env.step_async(ACTIONS),
        env.step_wait,
        lambda: env.get_attr("a"),
    ):
        with pytest.raises(ClosedError, match=r"used after close\(\)"):
            late()


def test_attributes(placement: dict[str, Any]) -> None:
    with VecEnv([lambda: gym.wrappers.TimeLimit(CountingEnv(), 9)] * N, **placement) as env:
        # Reaches the environment, and is not hidden on its outermost wrapper.
        env.set_attr("gravity", 3.0, indices=[1, -1])
        assert env.get_attr("gravity") == [9.8, 3.0, 9.8, 3.0]
        assert env.env_method("get_wrapper_attr", "gravity", indices=-1) == [3.0]
        assert env.has_attr("gravity")
        assert not env.has_attr("gravitty")
        assert env.env_is_wrapped(gym.wrappers.TimeLimit) == [True] * N
        with pytest.raises(IndexError, match="environment 4: expected 0 to 3"):
            env.get_attr("gravity", indices=4)


def test_pictures(placement: dict[str, Any]) -> None:
    make = partial(gym.make, "CartPole-v1", render_mode="rgb_array")
    with VecEnv([make] * N, **placement) as env:
        env.reset()
        images = env.get_images()
        assert [image.shape for image in images if image is not None] == [(400, 600, 3)] * N
        tiled = env.render()
        assert tiled is not None
        assert tiled.shape == (800, 1200, 3)
    env = VecEnv([partial(gym.make, "CartPole-v1")] * 2, parallel=False)
    with pytest.warns(UserWarning, match="expected render_mode='rgb_array', got None"):
        assert env.get_images() == [None, None]
    env.close()


def test_faults() -> None:
    options = PLACEMENTS["two workers"]
    env = VecEnv([CountingEnv, partial(FaultyEnv, "step", "kill")], **options)
    env.reset()
    with pytest.raises(WorkerDiedError, match="worker 1"):
        env.step(np.ones(2, int))
    env.close()
    env = VecEnv([CountingEnv, partial(FaultyEnv, "step")], **options)
    env.reset()
    with pytest.raises(DummyFaultError):
        env.step(np.ones(2, int))
    env.close()
    same_one = CountingEnv()
    with pytest.raises(ValueError, match="expected a new environment"):
        VecEnv([lambda: same_one] * 2, parallel=False)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["PPO", "SAC"])
def test_learners_see_the_same_numbers(name: str) -> None:
    """A short run gives the same weights on a VecEnv as on a DummyVecEnv, without and with workers."""
    import torch
    from stable_baselines3 import PPO, SAC

    def train(**options: Any) -> Any:
        torch.manual_seed(0)
        if name == "PPO":
            env = make_vec_env("CartPole-v1", N, seed=1, **options)
            model: Any = PPO("MlpPolicy", env, n_steps=32, batch_size=64, n_epochs=2, seed=0)
            steps = 512
        else:
            env = make_vec_env("Pendulum-v1", N, seed=1, **options)
            model = SAC(
                "MlpPolicy",
                env,
                learning_starts=40,
                batch_size=16,
                seed=0,
                policy_kwargs={"net_arch": [16]},
            )
            steps = 240
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.learn(steps)
        env.close()
        return {key: value.clone() for key, value in model.policy.state_dict().items()}

    expected = train()
    for placement in ("here", "a worker and here"):
        found = train(vec_env_cls=VecEnv, vec_env_kwargs=PLACEMENTS[placement])
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=0, atol=0)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_other_objects_are_refused(placement: str) -> None:
    with pytest.raises(ValueError, match="<class 'object'>, not a Gymnasium environment"):
        VecEnv([object] * 3, **PLACEMENTS[placement])
