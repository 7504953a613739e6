"""The policies of runs in samplers play what they play by themselves."""

from __future__ import annotations

import pytest
from policy_runs import MAKE

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.cages import VectorizedCage
from parllel.policies import PolicyAgent, load_policy
from parllel.samplers import BasicSampler, RecurrentSampler
from parllel.testing.cages.cage_hooks import SEEDS
from parllel.testing.cages.row_reference import assert_same_tree, seeds_of
from parllel_patterns import allocate_samples

SPEC, BATCHES = BatchSpec(13, 3), 5


def played_alone(policy, make_env, seed, n_steps):
    """Return the episodes of a plain loop."""
    env = make_env()
    observation, _ = env.reset(seed=seeds_of(seed)[0])
    policy.reset([0])
    for _ in range(n_steps):
        observation, _, terminated, truncated, _ = env.step(policy.act_one(observation))
        if terminated or truncated:
            observation, _ = env.reset()
            policy.reset([0])
    return env.episodes


@pytest.mark.parametrize("kind", ["normalized", "several_agents", "recurrent", "frames"])
@pytest.mark.few(2)
def test_episodes_are_those_of_the_policy_alone(trained, kind):
    path, make_env = trained(kind), MAKE[kind]
    policy = load_policy(path)
    cls = RecurrentSampler if policy.recurrent else BasicSampler
    handler = NumpyHandler(PolicyAgent(policy))
    automatic = cls.resets_automatically
    cage = VectorizedCage([make_env] * SPEC.B, seeds=SEEDS[: SPEC.B], reset_automatically=automatic)
    samples = allocate_samples([cage], SPEC, handler)
    with cls(SPEC, [cage], handler, samples) as sampler, load_policy(path) as alone:
        for batch in range(BATCHES):
            sampler.collect_batch(batch)
        found = cage.episodes
        for b in range(SPEC.B):
            n_steps = sum(map(len, found[b]))
            # An environment that waits begins its next episode with the next batch.
            assert n_steps == SPEC.T * BATCHES or not automatic
            expected = played_alone(alone, make_env, SEEDS[b], n_steps)
            assert_same_tree(found[b], expected[: len(found[b])], f"column {b}")
            assert len(found[b]) > 2
    policy.close()
