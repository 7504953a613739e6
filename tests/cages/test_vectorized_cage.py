"""Several environments in one cage: each column as a plain loop over its environment would fill it."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import Cage, VectorizedCage
from parllel.errors import ClosedError
from parllel.samplers import BasicSampler
from parllel.testing.cages.cage_hooks import FIRST, record_columns
from parllel.testing.cages.row_reference import (
    assert_same_batches,
    draw_actions,
    make_samples,
    read_batch,
    simulate,
)
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel_patterns import allocate_samples, build_cages

T, BATCHES = 5, 4


@settings(max_examples=60)
@given(
    lengths=st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=4), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
    end=st.sampled_from(["terminated", "truncated", "both", "alternate"]),
    layout=st.sampled_from(["box", "dict"]),
    automatic=st.booleans(),
    info=st.booleans(),
    check=st.sampled_from(["first_episode", "always"]),
)
def test_columns_are_those_of_plain_loops(
    lengths: list[list[int]],
    seed: int,
    end: str,
    layout: str,
    automatic: bool,
    info: bool,
    check: str,
) -> None:
    factories = [partial(CountingEnv, each, end=end, layout=layout, reuse=True) for each in lengths]
    n = len(factories)
    actions = [draw_actions(spaces.Discrete(4), seed + i, BATCHES, T) for i in range(n)]
    samples = make_samples(factories[0](), T, n + 2, info=info)
    seeds = [seed + i for i in range(n)]
    with VectorizedCage(factories, seeds=seeds, reset_automatically=automatic, check=check) as cage:
        cage.set_samples_buffer(samples, slice(FIRST, FIRST + n))
        found = record_columns(cage, samples, actions, automatic=automatic)
    for i in range(n):
        expected = simulate(factories[i](), seeds[i], actions[i], automatic=automatic, info=info)
        assert_same_batches(found[i], expected)
    for column in (0, n + 1):
        assert read_batch(samples, column, T).rewards == [0.0] * T


def test_a_sampler_gets_the_same_samples_from_one_cage_as_from_many() -> None:
    spec = BatchSpec(40, 3)
    batches = []
    for together in (False, True):
        seeds = Seeds(5)
        factory = partial(gym.make, "CartPole-v1")
        if together:
            cages: Any = [VectorizedCage([factory] * 3, seeds=seeds.spawn("environments", 3))]
        else:
            cages = build_cages(factory, 3, seeds=seeds)
        handler = NumpyHandler(RandomAgent(cages[0].spaces.action, seed=1))
        samples = allocate_samples(cages, spec, handler)
        with BasicSampler(
            spec, cages, handler, samples, decorrelation_steps=9, decorrelation_seed=2
        ) as sampler:
            made = [sampler.collect_batch(0) for _ in range(3)]
            lengths = sorted(traj.length for _, trajs in made for traj in trajs)
            batches.append((np.array(samples.env.observation), lengths))
    np.testing.assert_array_equal(batches[0][0], batches[1][0])
    assert batches[0][1] == batches[1][1]
    assert batches[0][1]


def test_wrong_arguments_and_calls() -> None:
    with pytest.raises(
        ValueError, match=r"expected at least one factory .*, got 0 factories and 0 seeds"
    ):
        VectorizedCage([])
    with pytest.raises(ValueError, match="got 2 factories and 1 seeds"):
        VectorizedCage([CountingEnv] * 2, seeds=[1])
    with pytest.raises(
        ValueError, match=r"environment 5: its spaces differ .* 4: expected Box.*Discrete.*got Dict"
    ):
        VectorizedCage([CountingEnv, partial(CountingEnv, layout="dict")], index=4)
    with pytest.raises(TypeError, match="env_factories: expected a list of functions, got"):
        VectorizedCage(CountingEnv)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"env_factories\[1\]: expected a function .* got <.*CountingEnv object"
    ):
        VectorizedCage([CountingEnv, CountingEnv()])  # type: ignore[list-item]


@pytest.mark.parametrize("kind", [Cage, VectorizedCage])
def test_a_closed_cage_is_known_before_a_row(kind: Any) -> None:
    cage = kind(CountingEnv if kind is Cage else [CountingEnv])
    cage.check_open()
    cage.close()
    with pytest.raises(ClosedError, match=r"used after close\(\)"):
        cage.check_open()


@pytest.mark.parametrize(
    ("odd", "options"),
    [
        (partial(CountingEnv, layout="dict"), {}),
        (CountingEnv, {"traj_info": lambda: 3}),
        (CountingEnv, {"seeds": [1, -1]}),
    ],
    ids=["spaces", "traj_info", "seeds"],
)
def test_environments_are_closed_if_the_cage_cannot_be_made(odd: Any, options: Any) -> None:
    made: list[CountingEnv] = []

    def factory(make: Any) -> CountingEnv:
        made.append(make())
        return made[-1]

    with pytest.raises((ValueError, TypeError), match=r"spaces differ|TrajInfo, got 3|negative"):
        VectorizedCage([partial(factory, CountingEnv), partial(factory, odd)], **options)
    # Seeds are looked at before any environment is made.
    assert [env.closed for env in made] == ([] if "seeds" in options else [1, 1])


def test_all_that_fail_to_close_are_named() -> None:
    cage = VectorizedCage([partial(FaultyEnv, "close")] * 3)
    with pytest.raises(DummyFaultError, match="close number 1") as caught:
        cage.close()
    assert caught.value.__notes__[-1].count("also DummyFaultError: close number 1") == 2
