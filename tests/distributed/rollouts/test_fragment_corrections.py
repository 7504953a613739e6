"""Corrections of batches of fragments, against sums over each fragment by itself in plain numpy."""

from __future__ import annotations

import math
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch

from parllel import BatchSpec, Seeds
from parllel.algos import Algorithm, TransformingAlgorithm
from parllel.buffers import buffer_map
from parllel.cages import Cage
from parllel.distributed.rollouts import FragmentCutter, FragmentSampler, ReplayBuffer, StepRecord
from parllel.torch import EvaluatePolicy, TorchHandler, agent_for
from parllel.transforms import (
    EstimateAdvantage,
    EstimateVtrace,
    FinalObservations,
    ImportanceWeights,
)
from parllel_patterns import allocate_samples

T, B, ENVIRONMENTS, DISCOUNT, GAE_LAMBDA = 5, 3, 3, 0.9, 0.8
FIELDS = ("advantage", "return_", "importance_weight")
SEEN = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = {
    "discrete": gym.spaces.Discrete(3, start=5),
    "continuous": gym.spaces.Box(-2, 2, (2,), np.float32),
    "several": gym.spaces.MultiDiscrete([2, 3], start=[4, 0]),
}


class Env(gym.Env):
    """Only its spaces are asked for."""

    observation_space = SEEN

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}


class Keeping(Algorithm):
    def optimize_agent(self, elapsed_steps, samples):
        self.samples = samples
        return {}


def tensor(array):
    return torch.from_numpy(np.array(array))


def draw(rng):
    return rng.uniform(-1, 1, 3).astype(np.float32)


def random_fragments(agent, rng, reward_type):
    """Return fragments whose steps end episodes, break off, both or neither, in every combination."""
    cutter, fragments = FragmentCutter(T), []
    seen = {}
    for version in range(150):
        environment = int(rng.integers(ENVIRONMENTS))
        before, after = seen.get(environment, draw(rng)), draw(rng)
        action, info = buffer_map(lambda leaf: leaf[0].numpy(), agent.step(tensor([before])))
        terminated, truncated = rng.random(2) < 0.15
        step = StepRecord(
            environment,
            before,
            action,
            info,
            reward_type(3 * rng.normal()),
            terminated,
            truncated,
            after,
            version,
            final_observation=draw(rng) if truncated else None,
        )
        fragments.append(cutter.add_step(step))
        seen[environment] = after
        if rng.random() < 0.1:
            fragments.append(cutter.break_off(environment))
            del seen[environment]
    return [fragment for fragment in fragments if fragment is not None]


def evaluated(agent, fragment):
    """Return what the agent says of each step, and the value of what followed it, in float64."""
    env, taken = fragment.env, fragment.agent
    seen = np.concatenate([env.observation, fragment.next_observation[None]])
    values = agent.value(tensor(seen)).numpy().astype(float)
    values, following = values[:-1], values[1:].copy()
    for row, last in fragment.final_observations.items():
        following[row] = agent.value(tensor([last]))
    following[env.terminated] = 0.0
    with torch.no_grad():
        log_prob, *_ = agent.evaluate(tensor(env.observation), tensor(taken.action))
    ratio = np.exp(log_prob.numpy().astype(float) - taken.agent_info.log_prob.astype(float))
    error = env.reward.astype(float) + DISCOUNT * following - values
    return SimpleNamespace(values=values, ratio=ratio, error=error, done=env.done)


def vtrace_of(one, rho_clip, c_clip):
    """Sum eq. 1 of Espeholt et al. 2018 forwards from each step; return advantages and targets."""
    n = len(one.values)
    targets = one.values.copy()
    for start in range(n):
        weight = 1.0
        for t in range(start, n):
            targets[start] += weight * min(rho_clip, one.ratio[t]) * one.error[t]
            if one.done[t]:
                break
            weight *= DISCOUNT * GAE_LAMBDA * min(c_clip, one.ratio[t])
    beyond = np.append(targets[1:] - one.values[1:], 0.0) * ~one.done
    return one.error + DISCOUNT * GAE_LAMBDA * beyond, targets


def trained_columns(name, agent, fragments, transforms, corrections):
    """Yield each fragment, and what a trainer's batch has in its column, by field of `agent`."""
    spec, handler, source = BatchSpec(T, B), TorchHandler(agent), ReplayBuffer(len(fragments))
    cages = [Cage(lambda: Env(ACTIONS[name]), seed=0) for _ in range(B)]
    samples = allocate_samples(cages, spec, handler, transforms)
    algorithm = TransformingAlgorithm(Keeping(), corrections)
    assert source.add(fragments, 0) == len(fragments)
    # Each step has a version of its own here.
    by_version = {int(fragment.env.version[0]): fragment for fragment in fragments}
    with FragmentSampler(spec, source, handler, samples, (), transforms, timeout_s=5) as sampler:
        while source.prepared() >= B:
            batch, _ = sampler.collect_batch(0)
            algorithm.optimize_agent(0, batch)
            for column in range(B):
                valid = np.asarray(batch.env.valid)[:, column]
                fragment = by_version[int(np.asarray(batch.env.version)[0, column])]
                assert valid.tolist() == [row < fragment.n_steps for row in range(T)]
                learned = algorithm.algorithm.samples.agent
                found = {
                    field: np.asarray(getattr(learned, field))[:, column]
                    for field in FIELDS
                    if hasattr(learned, field)
                }
                assert not any(rows[~valid].any() for rows in found.values())
                yield fragment, {field: rows[valid] for field, rows in found.items()}


def make_agent(name, seed):
    with Cage(lambda: Env(ACTIONS[name]), seed=0) as cage:
        # A gain that makes the policies of two seeds differ.
        return agent_for(cage.spaces, seeds=Seeds(seed), policy_gain=1.0, hidden_sizes=(8,))


def assert_close(found, expected):
    for field, values in expected.items():
        np.testing.assert_allclose(found[field], values, rtol=2e-5, atol=2e-5, err_msg=field)


@pytest.mark.parametrize(
    ("rho_clip", "c_clip", "clip"), [(1.0, 1.0, 1.0), (0.6, 0.4, 0.7), (math.inf, 1.2, math.inf)]
)
@pytest.mark.parametrize("name", ACTIONS)
def test_older_fragments_are_corrected_one_by_one(name, rho_clip, c_clip, clip):
    rng = np.random.default_rng(len(name))
    agent, acting = make_agent(name, 0), make_agent(name, 1)
    reward_type = {0.6: np.float64, 1.0: int}.get(rho_clip, np.float16)
    fragments = random_fragments(acting, rng, reward_type)
    corrections = [
        EvaluatePolicy(agent),
        EstimateVtrace(DISCOUNT, gae_lambda=GAE_LAMBDA, rho_clip=rho_clip, c_clip=c_clip),
        ImportanceWeights(clip),
    ]
    columns = trained_columns(name, agent, fragments, [FinalObservations()], corrections)
    clipped = 0
    for fragment, found in columns:
        one = evaluated(agent, fragment)
        advantage, targets = vtrace_of(one, rho_clip, c_clip)
        weights = np.minimum(clip, one.ratio)
        clipped += np.count_nonzero(weights < one.ratio)
        expected = {"advantage": advantage, "return_": targets, "importance_weight": weights}
        assert_close(found, expected)
    assert (clipped > 0) == math.isfinite(clip)


@pytest.mark.parametrize("name", ACTIONS)
def test_fragments_of_the_present_policy_need_no_correction(name):
    rng = np.random.default_rng(len(name))
    agent = make_agent(name, 0)
    fragments = random_fragments(agent, rng, np.float32)
    corrections = [
        EvaluatePolicy(agent),
        EstimateVtrace(DISCOUNT, gae_lambda=GAE_LAMBDA),
        ImportanceWeights(),
    ]
    plain = [EstimateAdvantage(DISCOUNT, GAE_LAMBDA)]
    pairs = zip(
        trained_columns(name, agent, fragments, [FinalObservations()], corrections),
        trained_columns(name, agent, fragments, plain, []),
        strict=True,
    )
    for (fragment, found), (same, expected) in pairs:
        assert fragment is same
        assert_close(found, {**expected, "importance_weight": 1.0})
