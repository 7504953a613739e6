"""`env.next_observation`: where each step led to, the end of an episode included."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from sampler_cages import grouped, synchronized, vectorized

from parllel import BatchSpec
from parllel.agents import NumpyHandler, RandomAgent
from parllel.buffers import Field, buffer_leaves
from parllel.cages import ProcessCage, VectorizedCage
from parllel.samplers import AlternatingSampler, AsynchronousSampler, BasicSampler, RecurrentSampler
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import LAYOUTS, CountingEnv
from parllel.transforms import BatchTransform
from parllel_patterns import allocate_samples

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

T, B = 7, 4
SPEC = BatchSpec(T, B)
FACTORIES = [partial(CountingEnv, n, end="alternate", reuse=True) for n in ((3, 5), 1, (2, 7), 30)]


def processes(factories, seeds, **options):
    return [
        ProcessCage(factory, seed=seed, start_method="fork", **options)
        for factory, seed in zip(factories, seeds, strict=True)
    ]


def one(make):
    return lambda factories, seeds, **options: [make(factories, seeds=seeds, **options)]


PLACES = {
    "vectorized": (BasicSampler, one(vectorized)),
    "processes": (BasicSampler, processes),
    "workers": (BasicSampler, one(synchronized(2))),
    "with main": (BasicSampler, one(synchronized(1, participate=True))),
    "halves": (AlternatingSampler, one(grouped(2))),
    "waiting": (RecurrentSampler, one(vectorized)),
    "waiting workers": (RecurrentSampler, one(synchronized(2))),
}


def build(place, factories=tuple(FACTORIES), agent=None, **options):
    cls, make = PLACES[place]
    waits = {"reset_automatically": False} if cls is RecurrentSampler else {}
    cages = make(list(factories), list(range(B)), **waits)
    handler = NumpyHandler(agent or CountingAgent(4))
    samples = allocate_samples(cages, SPEC, handler, next_observation=True, **options)
    return cls(SPEC, cages, handler, samples)


def leaves(tree):
    return [np.array(leaf) for _, leaf in buffer_leaves(tree)]


class PlainLoop:
    """Step the environments as a script would, with the actions of a batch."""

    def __init__(self, factories):
        self.envs = [factory() for factory in factories]
        for seed, env in enumerate(self.envs):
            env.reset(seed=seed)
        self.ended = [False] * len(self.envs)

    def follow(self, actions, *, waits):
        """Yield `(t, b, observation)` of every step that is made."""
        for t in range(len(actions)):
            for b, env in enumerate(self.envs):
                if waits and self.ended[b]:
                    continue
                observation, _, terminated, truncated, _ = env.step(actions[t, b])
                yield t, b, observation
                self.ended[b] = terminated or truncated
                if self.ended[b] and not waits:
                    env.reset()
        if waits:
            for b, env in enumerate(self.envs):
                if self.ended[b]:
                    env.reset()
                    self.ended[b] = False


def flat(observation):
    if isinstance(observation, dict):
        return [part for _, value in sorted(observation.items()) for part in flat(value)]
    if isinstance(observation, tuple):
        return [part for value in observation for part in flat(value)]
    return [np.asarray(observation)]


def compare(samples, loop, *, waits):
    found = leaves(samples.env.next_observation)
    kinds = [leaf.dtype for leaf in leaves(samples.env.observation)]
    assert [leaf.dtype for leaf in found] == kinds
    made = np.zeros((T, B), bool)
    for t, b, observation in loop.follow(np.asarray(samples.agent.action), waits=waits):
        made[t, b] = True
        for leaf, expected in zip(found, flat(observation), strict=True):
            np.testing.assert_array_equal(
                leaf[t, b], expected.astype(leaf.dtype), err_msg=f"{t} {b}"
            )
    for leaf in found:
        assert (leaf[~made] == 0).all()
    assert made.all() != waits
    return int(np.asarray(samples.env.done).sum())


@pytest.mark.parametrize("place", PLACES)
def test_it_is_what_a_plain_loop_steps_to(place):
    waits = PLACES[place][0] is RecurrentSampler
    loop, ended = PlainLoop(FACTORIES), 0
    with build(place) as sampler:
        for _ in range(4):
            samples, _ = sampler.collect_batch(0)
            ended += compare(samples, loop, waits=waits)
    assert ended > 8


@pytest.mark.parametrize("layout", LAYOUTS)
def test_observations_of_every_layout(layout):
    factories = [partial(factory, layout=layout) for factory in FACTORIES]
    loop = PlainLoop(factories)
    with build("vectorized", factories) as sampler:
        for _ in range(2):
            assert compare(sampler.collect_batch(0)[0], loop, waits=False) > 0


def test_cart_pole_against_gymnasium():
    factories = [partial(gym.make, "CartPole-v1")] * B
    loop, ended = PlainLoop(factories), 0
    agent = RandomAgent(gym.spaces.Discrete(2), 0)
    with build("with main", factories, agent) as sampler:
        for _ in range(20):
            samples, _ = sampler.collect_batch(0)
            ended += compare(samples, loop, waits=False)
    assert ended > 10


@pytest.mark.parametrize("switching", [False, True])
def test_batches_of_another_process(switching):
    loop = PlainLoop(FACTORIES)
    make = partial(build, "vectorized", switching=switching)
    with AsynchronousSampler(make, start_method="fork") as sampler:
        for _ in range(4):
            assert compare(sampler.collect_batch(0)[0], loop, waits=False) > 0


def test_stacks_of_frames_that_are_stored_once():
    class Frames(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (4, 4), np.uint8)
        action_space = gym.spaces.Discrete(4)

        def frame(self):
            self.n += 1
            return np.full(4, self.n % 251, np.uint8)

        def reset(self, *, seed=None, options=None):
            self.n = getattr(self, "n", 0) + 10
            self.left = 5
            self.frames = [self.frame()] * 4
            return np.stack(self.frames), {}

        def step(self, action):
            self.frames = [*self.frames[1:], self.frame()]
            self.left -= 1
            return np.stack(self.frames), 0.0, False, self.left == 0, {}

    factories = [Frames] * B
    loop, ended = PlainLoop(factories), 0
    with build("vectorized", factories, frames=4) as sampler:
        for _ in range(3):
            samples, _ = sampler.collect_batch(0)
            ended += compare(samples, loop, waits=False)
    assert ended == 3 * T // 5 * B


def test_values_of_ends_are_those_of_truncated_episodes_alone():
    filled = []
    for next_observation in (False, True):
        cages = [VectorizedCage(FACTORIES, seeds=range(B))]
        handler = NumpyHandler(CountingAgent(4))
        options = {"next_observation": next_observation}
        samples = allocate_samples(cages, SPEC, handler, **options)
        assert hasattr(samples.env, "next_observation") == next_observation
        with BasicSampler(SPEC, cages, handler, samples) as sampler:
            calls = []
            handler.final_value = lambda *call, calls=calls: calls.append(call)
            sampler.collect_batch(0)
            filled.append([[np.asarray(part).tolist() for part in call] for call in calls])
    assert filled[0] == filled[1]
    assert filled[0]


def test_a_batch_transform_may_read_it():
    class Surprise(BatchTransform):
        reads = ("env.observation", "env.next_observation")

        def fields(self, samples):
            return {"env.moved": Field(np.zeros(3, np.float32))}

        def transform_batch(self, samples):
            before, after = samples.env.observation, samples.env.next_observation
            samples.env.moved[...] = np.asarray(after) - np.asarray(before)

    cages = [VectorizedCage(FACTORIES, seeds=range(B))]
    handler, transforms = NumpyHandler(CountingAgent(4)), [Surprise()]
    samples = allocate_samples(cages, SPEC, handler, transforms, next_observation=True)
    with BasicSampler(SPEC, cages, handler, samples, batch_transforms=transforms) as sampler:
        samples, _ = sampler.collect_batch(0)
        # A step adds one to the last number, whether it ends an episode or not.
        assert (np.asarray(samples.env.moved) == [0, 0, 1]).all()
        assert np.asarray(samples.env.done).any()
