"""Several environments in one cage: each column as a plain loop over its environment would fill it."""

from __future__ import annotations

from collections.abc import Sequence
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
from parllel.buffers import buffer_rotate
from parllel.cages import VectorizedCage
from parllel.errors import ClosedError, WrongStateError
from parllel.samplers import BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel.testing.row_reference import (
    BatchRecord,
    assert_same_batches,
    draw_actions,
    make_samples,
    read_batch,
    simulate,
)
from parllel_patterns import allocate_samples, build_cages

T, BATCHES, FIRST = 5, 4, 1  # columns before and behind the cage are somebody else's


def record_all(
    cage: VectorizedCage,
    samples: Any,
    actions: Sequence[Sequence[Sequence[Any]]],
    automatic: bool,
) -> list[list[BatchRecord]]:
    """Return what each column holds after each batch."""
    columns: list[list[BatchRecord]] = [[] for _ in range(cage.n)]
    for k in range(BATCHES):
        if k == 0 or not automatic:
            cage.start_reset(0, everyone=k == 0)
            cage.finish_row()
        needs = [cage.needs_reset.copy()]
        for t in range(T):
            for i in range(cage.n):
                samples.agent.action[t, FIRST + i] = actions[i][k][t]
            cage.start_row(t)
            cage.finish_row()
            needs.append(cage.needs_reset.copy())
        final, trajs = cage.collect_final_observations(), cage.collect_completed_trajs()
        # Episodes come by column, final observations by row and then column.
        order = sorted(f.column - FIRST for f in final)
        for i, column in enumerate(columns):
            made = read_batch(samples, FIRST + i, T)
            made.needs_reset = [bool(row[i]) for row in needs]
            made.final = [(f.row, f.observation) for f in final if f.column == FIRST + i]
            made.trajs = [
                (traj.length, traj.return_, traj.discounted_return)
                for j, traj in zip(order, trajs, strict=True)
                if j == i
            ]
            column.append(made)
        buffer_rotate(samples.env)
    return columns


@settings(max_examples=60, deadline=None)
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
        found = record_all(cage, samples, actions, automatic)
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


def step_often(cage: VectorizedCage) -> None:
    for step in range(20):
        cage.start_row(step % T)
        cage.finish_row()


def test_the_environment_that_fails_is_named() -> None:
    factories = [CountingEnv, partial(FaultyEnv, "step", "raise", number=12, lengths=3)]
    samples = make_samples(CountingEnv(), T, 2, info=False)
    with VectorizedCage(factories, index=4, seeds=[1, 2]) as cage:
        cage.set_samples_buffer(samples, slice(0, 2))
        cage.start_reset()
        cage.finish_row()
        with pytest.raises(DummyFaultError) as caught:
            step_often(cage)
        if hasattr(caught.value, "__notes__"):
            assert caught.value.__notes__[0].startswith("in environment 5 (")
            assert caught.value.__notes__[0].endswith("during step")


def test_attributes_are_lists_and_are_set_for_all() -> None:
    with VectorizedCage([partial(gym.make, "CartPole-v1")] * 2) as cage:
        assert cage.gravity == [9.8, 9.8]
        cage.gravity = 3.0
        assert cage.gravity == [3.0, 3.0]
        assert cage.env_method("has_wrapper_attr", "gravity") == [True, True]


def test_wrong_arguments_and_calls() -> None:
    with pytest.raises(ValueError, match="expected factories and as many seeds, got 0 and 0"):
        VectorizedCage([])
    with pytest.raises(ValueError, match="got 2 and 1"):
        VectorizedCage([CountingEnv] * 2, seeds=[1])
    with pytest.raises(ValueError, match="environment 1: its spaces differ"):
        VectorizedCage([CountingEnv, partial(CountingEnv, layout="dict")])
    cage = VectorizedCage([CountingEnv] * 2)
    with pytest.raises(ValueError, match="columns: expected 2 of the 3"):
        cage.set_samples_buffer(make_samples(CountingEnv(), T, 3), slice(0, 3))
    with pytest.raises(WrongStateError, match=r"finish_row\(\) without a start"):
        cage.finish_row()
    cage.close()
    cage.close()
    with pytest.raises(ClosedError, match=r"used after close\(\)"):
        cage.start_row(0)
