"""The batches of a sampler give the fragments that their steps give one by one."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from parllel import BatchSpec
from parllel.agents import NumpyHandler, RandomAgent
from parllel.buffers import buffer_map
from parllel.cages import VectorizedCage
from parllel.distributed.rollouts import FragmentCutter, StepRecord
from parllel.envs import ParallelEnvAdapter
from parllel.samplers import BasicSampler, RecurrentSampler
from parllel.testing.dummy_agents import CountingAgent, RecurrentCountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_parallel_env import CountingParallelEnv
from parllel.transforms import NormalizeObservations
from parllel_patterns import allocate_samples

T, B, BATCHES = 6, 3, 5
SPEC = BatchSpec(T, B)
LENGTHS = ((3, 5), 1, 30)


def make_sampler(cls, layout="box", *, transforms=(), next_observation=True):
    recurrent = cls is RecurrentSampler
    cages = [
        VectorizedCage(
            [partial(CountingEnv, n, end="alternate", layout=layout) for n in LENGTHS],
            seeds=list(range(B)),
            reset_automatically=not recurrent,
        )
    ]
    agent = RecurrentCountingAgent(4, n_envs=B) if recurrent else CountingAgent(4)
    handler = NumpyHandler(agent)
    samples = allocate_samples(
        cages,
        SPEC,
        handler,
        transforms,
        env_info={"step": 0, "half": np.zeros(1, np.float32)},
        next_observation=next_observation,
    )
    return cls(SPEC, cages, handler, samples, transforms)


def cell(tree, t, column):
    return buffer_map(lambda leaf: np.asarray(leaf[t])[column], tree)


def step_of(samples, t, column, version, *, recurrent):
    """Return one step of a batch as a worker that steps single environments would record it."""
    env, agent = samples.env, samples.agent
    where = (t, column)
    done = bool(np.asarray(env.done)[where])
    seen = agent.observation is not env.observation
    return StepRecord(
        column,
        cell(env.observation, *where),
        cell(agent.action, *where),
        cell(agent.agent_info, *where),
        np.asarray(env.reward)[where],
        np.asarray(env.terminated)[where],
        np.asarray(env.truncated)[where],
        cell(env.observation, t + 1, column),
        version,
        final_observation=cell(env.next_observation, *where) if done else None,
        env_info=cell(env.env_info, *where),
        agent_observation=cell(agent.observation, *where) if seen else None,
        rnn_state=cell(agent.initial_rnn_state, 0, column) if recurrent else None,
    )


def cut_both_ways(sampler, fragment_length, *, recurrent=False):
    """Return the fragments of some batches, and those of their steps one by one."""
    whole = FragmentCutter(fragment_length, recurrent=recurrent)
    single = FragmentCutter(fragment_length, recurrent=recurrent)
    ours, theirs = [], []
    for version in range(BATCHES):
        samples, _ = sampler.collect_batch(0)
        ours += whole.add_batch(samples, version)
        valid = np.asarray(samples.env.valid) if recurrent else np.ones((T, B), bool)
        for t, column in zip(*np.nonzero(valid), strict=True):
            step = step_of(samples, int(t), int(column), version, recurrent=recurrent)
            # Only that of the first step is known, and only that is read.
            theirs.append(single.add_step(step))
    return ours, [fragment for fragment in theirs if fragment is not None]


def digests(fragments):
    assert fragments
    return {fragment.key: fragment.digest() for fragment in fragments}


@pytest.mark.parametrize(
    ("layout", "fragment_length"),
    [("dict", 1), ("box", 4), ("discrete", T), ("image", 2 * T + 1)],
)
def test_batches_give_the_fragments_of_their_steps(layout, fragment_length):
    with make_sampler(BasicSampler, layout) as sampler:
        ours, theirs = cut_both_ways(sampler, fragment_length)
    assert len(ours) == B * (BATCHES * T // fragment_length)
    assert digests(ours) == digests(theirs)


def test_batches_of_a_recurrent_agent():
    with make_sampler(RecurrentSampler, "dict") as sampler:
        ours, theirs = cut_both_ways(sampler, T, recurrent=True)
    # One for each environment and batch, whether an episode ended in it or not.
    assert len(ours) == B * BATCHES
    assert digests(ours) == digests(theirs)
    assert {len(fragment.env.valid) for fragment in ours} == {T}
    assert {fragment.n_steps for fragment in ours if fragment.environment == 1} == {1}


@pytest.mark.parametrize(
    "storage", [{"frames": 3}, {"n_batches": 3}, {"n_batches": 2, "frames": 3}]
)
def test_how_samples_are_stored_changes_nothing(storage):
    def stacked():
        env = CountingEnv(5, end="alternate", layout="image")
        return gym.wrappers.FrameStackObservation(env, 3)

    found = []
    for options in ({}, storage):
        cages = [VectorizedCage([stacked] * B, seeds=list(range(B)))]
        handler = NumpyHandler(CountingAgent(4))
        samples = allocate_samples(cages, SPEC, handler, next_observation=True, **options)
        cutter = FragmentCutter(4)
        with BasicSampler(SPEC, cages, handler, samples) as sampler:
            fragments = []
            for _ in range(4):
                fragments += cutter.add_batch(sampler.collect_batch(0)[0], 0)
        found.append(digests(fragments))
    assert found[0] == found[1]


def test_batches_of_several_agents():
    lives = {"a": 3, "b": 5}
    cages = [
        VectorizedCage(
            [lambda: ParallelEnvAdapter(CountingParallelEnv(lives, {"b": "truncated"}))] * B,
            seeds=list(range(B)),
        )
    ]
    handler = NumpyHandler(RandomAgent(cages[0].spaces.action, seed=1))
    rewards = {"reward": dict.fromkeys(lives, 0.0)}
    samples = allocate_samples(cages, SPEC, handler, env_info=rewards, next_observation=True)
    with BasicSampler(SPEC, cages, handler, samples) as sampler:
        ours, theirs = cut_both_ways(sampler, 4)
    assert digests(ours) == digests(theirs)
    assert ours[0].agent.action.b.shape == (4, 2)
    assert ours[0].env.env_info.reward._fields == ("a", "b")


def test_what_the_agent_saw_is_kept_where_it_differs():
    with make_sampler(BasicSampler, transforms=[NormalizeObservations()]) as sampler:
        ours, theirs = cut_both_ways(sampler, 4)
    assert digests(ours) == digests(theirs)
    observation, seen = ours[-1].env.observation, ours[-1].agent.observation
    assert observation.shape == seen.shape
    assert not np.array_equal(observation, seen)
    with make_sampler(BasicSampler) as sampler:
        ours, _ = cut_both_ways(sampler, 4)
    assert "observation" not in ours[0].agent._fields


def test_a_gap_between_batches():
    cutter = FragmentCutter(4)
    with make_sampler(BasicSampler) as sampler:
        cutter.add_batch(sampler.collect_batch(0)[0], 0)
        fragment = cutter.break_off(2)
        assert (fragment.key[1:], fragment.length) == ((2, 0, 1), 2)
        assert fragment.env.aborted.tolist() == [False, True]
        # The episode of environment 2 goes on, but what came before is lost.
        after = cutter.add_batch(sampler.collect_batch(0)[0], 1)
    keys = [one.key[1:] for one in after if one.environment == 2]
    assert keys == [(2, 1, 0)]
    assert after[-1].env.first.tolist() == [True, False, False, False]
    assert cutter.position(2) == (1, 1, 2)


@pytest.mark.parametrize(
    ("cls", "recurrent", "length", "message"),
    [
        (BasicSampler, True, T, r"expected a `env.valid` field for .*recurrent=True\), got none"),
        (RecurrentSampler, False, T, r"expected no `env.valid` field for .*False\), got one"),
        (RecurrentSampler, True, T - 1, f"fragment_length={T - 1} rows .* got {T}"),
        (BasicSampler, False, T, "expected a field `env.next_observation`"),
    ],
)
def test_samples_that_do_not_fit_are_refused(cls, recurrent, length, message):
    with make_sampler(cls, next_observation=False) as sampler:
        samples, _ = sampler.collect_batch(0)
        with pytest.raises(ValueError, match=message):
            FragmentCutter(length, recurrent=recurrent).add_batch(samples, 0)
