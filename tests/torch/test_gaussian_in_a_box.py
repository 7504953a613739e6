"""A Gaussian draws from outside of a Box: environments get what is clipped, learners what was drawn."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch

from parllel import BatchSpec
from parllel.cages import ProcessCage, SynchronizedProcessCage, VectorizedCage
from parllel.samplers import AlternatingSampler, BasicSampler, EvalSampler, RolloutSampler
from parllel.testing import CountingEnv
from parllel.torch import GaussianHead, GaussianPgAgent, PgModel, SmallPolicyHandler, TorchHandler
from parllel_patterns import allocate_eval_samples, allocate_samples

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

T, B = 6, 4
BOX = gym.spaces.Box(np.array([-1, -0.25], np.float32), np.array([0.5, 2], np.float32))
FACTORY = partial(CountingEnv, (2, 3), action_space=BOX)


def agent():
    model = PgModel((3,), GaussianHead((2,), initial_log_std=0.5), (8,), seed=0)
    with torch.no_grad():
        model.policy.layers[0].weight[:, 0] = 0  # of the mark, which saturates every unit
        model.policy.layers[-1].bias[:] = torch.tensor([1.0, -1.0])  # the mean lies outside
    return GaussianPgAgent(model, (2,), seed=5)


def synchronized(**options):
    return [SynchronizedProcessCage([FACTORY] * B, seeds=seeds(), start_method="fork", **options)]


def seeds():
    return list(range(B))


PLACES = {
    "vectorized": (BasicSampler, lambda: [VectorizedCage([FACTORY] * B, seeds=seeds())]),
    "halves": (
        AlternatingSampler,
        lambda: [VectorizedCage([FACTORY] * 2, seeds=seeds()[i : i + 2]) for i in (0, 2)],
    ),
    "processes": (
        BasicSampler,
        lambda: [ProcessCage(FACTORY, seed=seed, start_method="fork") for seed in seeds()],
    ),
    "participating": (BasicSampler, lambda: synchronized(n_workers=1, participate=True)),
    "rollouts": (RolloutSampler, lambda: synchronized(n_workers=1, participate=True)),
}


def actions_of(cages):
    """Return the actions that each environment got."""
    of_cages = [cage.actions for cage in cages]
    return [
        of for cage, of in zip(cages, of_cages, strict=True) for of in ([of] if cage.n == 1 else of)
    ]


def close(cages):
    for cage in cages:
        cage.close()


COMPILED = [(place, SmallPolicyHandler) for place in PLACES]
TORCH = [(place, TorchHandler) for place in PLACES if place != "rollouts"]


@pytest.mark.parametrize(("place", "handler_class"), COMPILED + TORCH)
def test_samples_keep_what_was_drawn(place, handler_class):
    cls, make = PLACES[place]
    handler = handler_class(agent())
    cages = make()
    spec = BatchSpec(T, B)
    samples = allocate_samples(cages, spec, handler, noise=place == "rollouts")
    if place == "rollouts":
        cages[0].set_policy(handler.worker_policy())
    with cls(spec, cages, handler, samples) as sampler:
        samples, _ = sampler.collect_batch(0)
        drawn = np.array(samples.agent.action)
        found = np.swapaxes(np.array(actions_of(cages)), 0, 1)
    np.testing.assert_array_equal(found, np.clip(drawn, BOX.low, BOX.high))
    assert ((drawn < BOX.low) | (drawn > BOX.high)).mean() > 0.3
    observation = torch.as_tensor(np.array(samples.env.observation)).reshape(T * B, -1)
    action = torch.as_tensor(drawn).reshape(T * B, 2)
    with torch.no_grad():
        log_prob, _, _ = agent().evaluate(observation, action)
    np.testing.assert_allclose(
        np.array(samples.agent.agent_info.log_prob).reshape(-1), log_prob.numpy(), rtol=1e-4
    )


@pytest.mark.parametrize("place", ["vectorized", "processes", "participating"])
def test_evaluations_clip_the_mode(place):
    cages = PLACES[place][1]()
    handler = TorchHandler(agent())
    with EvalSampler(cages, handler, allocate_eval_samples(cages), B) as sampler:
        sampler.collect_batch(0)
        for actions in actions_of(cages):
            np.testing.assert_array_equal(actions, [[0.5, -0.25]] * len(actions))


@pytest.mark.parametrize("place", ["vectorized", "participating"])
def test_what_is_evaluated_is_clipped_as_well(place):
    cages = PLACES[place][1]()
    handler = TorchHandler(agent())
    with EvalSampler(cages, handler, allocate_eval_samples(cages), B) as sampler:
        sampler.collect_batch(0)
        actions = actions_of(cages)[2]
        np.testing.assert_array_equal(actions, [[0.5, -0.25]] * len(actions))
        assert len(actions)


def test_pendulum_by_the_same_actions_as_a_plain_loop():
    handler = TorchHandler(
        GaussianPgAgent(PgModel((3,), GaussianHead((1,), 1.0), (8,), seed=0), (1,), seed=5)
    )
    factory = partial(gym.make, "Pendulum-v1")
    cages = [VectorizedCage([factory], seeds=[3])]
    samples = allocate_samples(cages, BatchSpec(50, 1), handler)
    with BasicSampler(BatchSpec(50, 1), cages, handler, samples) as sampler:
        samples, _ = sampler.collect_batch(0)
    env = factory()
    env.reset(seed=3)
    for t in range(50):
        action = np.clip(np.array(samples.agent.action)[t, 0], -2, 2)
        observation, reward, *_ = env.step(action)
        np.testing.assert_array_equal(np.asarray(samples.env.observation[t + 1])[0], observation)
        assert np.asarray(samples.env.reward)[t, 0] == np.float32(reward)
    assert np.abs(np.array(samples.agent.action)).max() > 2
    env.close()
