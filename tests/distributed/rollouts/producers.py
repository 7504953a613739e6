"""Workers for trainers: a sampler whose batches are cut into fragments."""

from __future__ import annotations

from functools import partial

import gymnasium as gym

from parllel import BatchSpec, Seeds
from parllel.distributed.rollouts import (
    EpisodeStatistics,
    FragmentCutter,
    FragmentSampler,
    ReplayBuffer,
    Rollouts,
)
from parllel.distributed.rollouts.published_parts import PublishedParts
from parllel.samplers import BasicSampler
from parllel.torch import CategoricalHead, CategoricalPgAgent, PgModel, TorchHandler
from parllel_patterns import allocate_samples, build_cages

SPEC = BatchSpec(16, 4)
# Short, so that some episodes are truncated and others fail.
MAKE_ENV = partial(gym.make, "CartPole-v1", max_episode_steps=24)


def make_agent(seed=1):
    return CategoricalPgAgent(PgModel((4,), CategoricalHead(2), (16, 16), seed=seed), 2, seed=2)


class Producer:
    """A sampler that acts with the weights that it was given last, and the fragments of its batches."""

    def __init__(self, buffer, *, step=(), batch=(), agent=None, statistics=None, seed=0):
        cages = build_cages(MAKE_ENV, SPEC.B, seeds=Seeds(seed))
        self.agent = agent or make_agent()
        self.handler = TorchHandler(self.agent)
        self.buffer, self.statistics, self.version = buffer, statistics, 0
        samples = allocate_samples(
            cages, SPEC, self.handler, [*step, *batch], next_observation=True
        )
        self.sampler = BasicSampler(SPEC, cages, self.handler, samples, step, batch)
        self.parts = PublishedParts(self.handler, step)
        self.cutter = FragmentCutter(SPEC.T)

    def load_weights(self, weights, version):
        self.parts.layout.check(weights)
        self.parts.load(weights)
        self.sampler.updates_statistics = False
        self.version = version

    def produce(self):
        """Make a batch, add its fragments to the buffer, and return it."""
        samples, trajs = self.sampler.collect_batch(0)
        if self.statistics is not None:
            self.statistics.report(trajs)
        fragments = self.cutter.add_batch(samples, self.version)
        assert self.buffer.add(fragments, timeout_s=0) == len(fragments)
        return samples

    def load_and_produce(self, weights, version):
        """Do both, so that the next batch is there before the trainer asks for it."""
        self.load_weights(weights, version)
        self.produce()


def trainer_samples(handler, transforms=()):
    """Return a buffer for a trainer, who has no environments but knows their spaces."""
    cages = build_cages(MAKE_ENV, 1, seeds=Seeds(9))
    samples = allocate_samples(cages, SPEC, handler, transforms)
    for cage in cages:
        cage.close()
    return samples


class Called(Rollouts):
    """Calls these functions in place of workers."""

    def __init__(self, publish_to, check_workers):
        self.publish_to, self.check_workers = publish_to, check_workers
        self.said = []

    def load_weights(self, weights, version):
        for load_weights in self.publish_to:
            load_weights(weights, version)
        return True

    def check(self):
        for check in self.check_workers:
            check()

    def statuses(self):
        return self.said

    def close(self):
        pass


def make_fragment_sampler(
    buffer, *, agent=None, step=(), batch=(), publish_to=(), check_workers=(), **arguments
):
    handler = TorchHandler(agent or make_agent())
    samples = trainer_samples(handler, [*step, *batch])
    workers = Called(publish_to, check_workers)
    arguments = {"timeout_s": 20.0, "workers": workers, **arguments}
    return FragmentSampler(SPEC, buffer, handler, samples, step, batch, **arguments)


def make_parts(*, capacity=64, max_staleness=None, step=()):
    """Return a buffer, statistics and a producer."""
    buffer = ReplayBuffer(capacity, max_staleness=max_staleness)
    statistics = EpisodeStatistics()
    return buffer, statistics, Producer(buffer, step=step, statistics=statistics)
