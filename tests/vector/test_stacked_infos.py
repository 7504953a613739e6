"""Infos of every kind are stacked as by gymnasium's SyncVectorEnv, in every placement."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from test_vector_env_equal import same
from vector_placements import PLACEMENTS

from parllel.testing import CountingEnv
from parllel.vector import VectorEnv

N = 4
ACTIONS = np.ones(N, int)


class ToldInfos(CountingEnv):
    """Reports the info that was set last."""

    told: Any = {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, _ = super().reset(seed=seed, options=options)
        return observation, dict(self.told)

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], dict(self.told)


OBJECTS = st.one_of(
    st.text(max_size=3), st.none(), st.just(()), st.just([1]), st.booleans().map(np.bool_)
)
LIKE = {
    "float": st.floats(-9, 9),
    "int": st.integers(-9, 9),
    "bool": st.booleans(),
    "float64": st.floats(-9, 9).map(np.float64),
    "float32": st.floats(-9, 9, width=32).map(np.float32),
    "int64": st.integers(-9, 9).map(np.int64),
    "bool_": st.booleans().map(np.bool_),
}


def one_info() -> st.SearchStrategy[dict[str, Any]]:
    """Return infos with any keys, whose values fit the arrays that gymnasium makes."""
    pairs = st.integers(-9, 9).map(lambda k: np.array([k, k / 2], np.float32))
    flat = {"small": st.integers(0, 99), "object": OBJECTS, "pair": pairs}
    return st.fixed_dictionaries(
        {},
        optional={
            **flat,
            "deep": st.fixed_dictionaries({}, optional={**flat, "deeper": st.just({"k": 1.5})}),
        },
    )


@st.composite
def infos_of_all(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw infos that differ, or have the same few numbers, of which tables are made."""
    if draw(st.booleans()):
        return [draw(one_info()) for _ in range(N)]
    kinds = draw(st.lists(st.sampled_from(sorted(LIKE)), min_size=1, max_size=4))
    numbers = {f"{kind} {k}": LIKE[kind] for k, kind in enumerate(kinds)}
    return [draw(st.fixed_dictionaries(numbers)) for _ in range(N)]


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=str)
@pytest.mark.few(3)
def test_infos_of_any_kind(mode: AutoresetMode, placement: str) -> None:
    makes = [partial(ToldInfos, (3, 1, 4))] * N
    env = VectorEnv(makes, autoreset_mode=mode, **PLACEMENTS[placement])
    reference = SyncVectorEnv(makes, autoreset_mode=mode)

    @settings(max_examples=100, database=None)
    @given(infos_of_all())
    def check(infos: list[dict[str, Any]]) -> None:
        for one in (env, reference):
            one.set_attr("told", infos)
        same(env.step(ACTIONS), reference.step(ACTIONS))
        mask = {"reset_mask": np.arange(N) % 2 == 1}
        same(env.reset(options=dict(mask)), reference.reset(options=dict(mask)))

    with env:
        same(env.reset(seed=1), reference.reset(seed=1))
        check()
    reference.close()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_arrays_belong_to_the_caller(placement: str) -> None:
    with VectorEnv([ToldInfos] * N, **PLACEMENTS[placement]) as env:
        env.set_attr("told", {"x": 1.5, "k": 2})
        env.reset(seed=0)
        first = env.step(ACTIONS)[4]
        for array in first.values():
            array[:] = 0  # masks are not shared either
        second = env.step(ACTIONS)[4]
        assert second["x"].tolist() == [1.5] * N
        assert second["_x"].all()
        assert second["_k"].all()
        assert not first["_x"].any()


@pytest.mark.parametrize(
    "values",
    [
        [1, "word", 2, 3],
        [np.zeros(2), np.zeros(3), np.ones(2), np.zeros(1)],
        [{"k": 1}, 2, {"k": 3}, {}],
        [2, None, {"k": 3}, 1],
        [1, 2**70, 3, 4],
        [2**70, 1, 2, 3],
    ],
    ids=["word", "shapes", "dict first", "number first", "a long int", "a long int first"],
)
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.few(6)
def test_values_that_fit_no_array_are_objects(placement: str, values: list[Any]) -> None:
    # gymnasium raises in such a step, which is lost then.
    with VectorEnv([ToldInfos] * N, **PLACEMENTS[placement]) as env:
        env.set_attr("told", [{"x": value} for value in values])
        env.reset(seed=0)
        infos = env.step(ACTIONS)[4]
        assert infos["_x"].all()
        assert infos["x"].dtype == object
        for found, value in zip(infos["x"], values, strict=True):
            np.testing.assert_array_equal(found, value)


class UnusualEnd(CountingEnv):
    """Observes arrays that lie in memory in unusual ways, and reports functions at the end."""

    def step(self, action: Any) -> Any:
        _, reward, terminated, truncated, _ = super().step(action)
        turned = np.asfortranarray(np.full((2, 3), reward, np.float32) + np.arange(3))
        info = {"f": len} if terminated or truncated else {}
        return turned, reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        return np.zeros((2, 3), np.float32), {}

    def __init__(self, lengths: Any) -> None:
        super().__init__(lengths, end="alternate")
        self.observation_space = gym.spaces.Box(-99, 99, (2, 3), np.float32)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_last_observations_of_any_layout(placement: str) -> None:
    makes = [partial(UnusualEnd, (3, 1, 4))] * N
    reference = SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP)
    options = PLACEMENTS[placement]
    with VectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP, **options) as env:
        same(env.reset(seed=0), reference.reset(seed=0))
        for _ in range(9):
            found, expected = env.step(ACTIONS), reference.step(ACTIONS)
            same(found, expected)
            for final in found[4].get("final_obs", ()):
                final += 1.0  # the caller's own
    reference.close()
