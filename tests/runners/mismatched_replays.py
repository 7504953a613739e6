"""The parts of a small off-policy training, and the mistakes that a script can make with them."""

from __future__ import annotations

from functools import partial

import numpy as np
from mismatched_parts import ROWS, SPEC, PenaliseFalls, built_there, row

from parllel.algos import OffPolicyAlgorithm, TransformingAlgorithm
from parllel.distributed.rollouts import FragmentSampler, ReplayBuffer
from parllel.logging import Logger
from parllel.replays import Replay, ReplayBatch, Transitions
from parllel.runners import OffPolicyRunner, OnPolicyRunner, check_parts
from parllel.samplers import AsynchronousSampler
from parllel.torch import TorchHandler
from parllel.transforms import FinalObservations
from parllel_patterns import allocate_samples

__all__ = ["ROWS"]


class NewestReplay(Replay):
    """Draws the rewards of the newest batch, in place of what algorithms need."""

    batch_class = Transitions

    def __init__(self, samples, reads=("env.reward",)):
        self.samples, self.batch_size, self.reads = samples, SPEC.size, reads

    n_stored = 0

    def add(self, samples, *, source=None):
        self.n_stored += 1
        self.reward = np.array(samples.env.reward).ravel()

    def sample(self):
        same = dict.fromkeys(("observation", "action", "next_observation", "discount"), self.reward)
        return Transitions(replay=self, reward=self.reward, weight=self.reward, **same)

    def state(self):
        return {}

    def load_state(self, state):
        pass


class Pairs(ReplayBatch):
    """What another algorithm learns from."""


class PairReplay(NewestReplay):
    """Draws pairs."""

    batch_class = Pairs


class RewardReader(OffPolicyAlgorithm):
    """Reads rewards."""

    def __init__(self, agent):
        self.agent = agent

    def optimize_agent(self, elapsed_steps, samples):
        return {"reward": samples.reward.mean()}


class PairReader(RewardReader):
    """Learns from pairs."""

    batch_class = Pairs


def filled(p, **options):
    """Return a sampler whose buffer holds four batches."""
    p.batch_transforms = [FinalObservations()]
    return p.sampler(n_batches=4, **options)


def train(p, sampler=None, algorithm=None, replay=None, **options):
    sampler = sampler or filled(p)
    options = {
        "replay_ratio": 0.5,
        "learning_starts": 16,
        "n_steps": 48,
        "log_interval_steps": 16,
        "logger": Logger([]),
        **options,
    }
    algorithm = algorithm or RewardReader(p.agent)
    runner = OffPolicyRunner(
        SPEC, sampler, algorithm, replay or NewestReplay(sampler.samples), **options
    )
    runner.run()
    return runner


def another_buffer(p):
    cages = p.more_cages("b")
    return allocate_samples(cages, SPEC, TorchHandler(p.agent), [FinalObservations()], n_batches=4)


@row("replay: expected a NewestReplay of the buffer that the BasicSampler writes into", train)
def replay_of_another_buffer(p):
    train(p, replay=NewestReplay(another_buffer(p)))


def one_after_the_other(p):
    sampler = filled(p)
    replay = NewestReplay(sampler.samples)
    return [train(p, sampler, replay=replay), train(p, sampler, replay=replay)]


@row("replay: expected one that this OffPolicyRunner has to itself", one_after_the_other)
def replay_two_runners(p):
    sampler = filled(p)
    replay = NewestReplay(sampler.samples)
    options = {"replay_ratio": 1, "learning_starts": 0, "n_steps": 48, "log_interval_steps": 16}
    make = partial(OffPolicyRunner, SPEC, sampler, RewardReader(p.agent), replay, **options)
    return make(logger=Logger([])), make(logger=Logger([]))


@row("algorithm: expected an OffPolicyAlgorithm, .* got PPO", lambda p: p.run(), TypeError)
def replay_of_on_policy_algorithm(p):
    train(p, algorithm=p.ppo())


@row("algorithm: RewardReader learns from batches drawn from a replay", train, TypeError)
def replay_missing(p):
    sampler = filled(p)
    algorithm = RewardReader(p.agent)
    options = {"n_steps": 32, "log_interval_steps": 16, "logger": Logger([])}
    OnPolicyRunner(SPEC, sampler, algorithm, **options)


@row("expected an OffPolicyAlgorithm, got a TransformingAlgorithm", train, TypeError)
def replay_and_transforming_algorithm(p):
    train(p, algorithm=TransformingAlgorithm(RewardReader(p.agent), []))


def pairs(p):
    sampler = filled(p)
    reader = RewardReader(p.agent)
    reader.batch_class = ReplayBatch  # whatever is drawn
    reader.optimize_agent = lambda elapsed_steps, samples: {}
    train(p, sampler, reader, PairReplay(sampler.samples))


@row("replay: expected one that draws Pairs, which PairReader learns from, got a", pairs, TypeError)
def replay_draws_other_batches(p):
    train(p, algorithm=PairReader(p.agent))


def taught(p):
    """Learn from what another agent does, and say so."""
    trained = p.new_agent()
    p.handler.trained = trained
    train(p, algorithm=RewardReader(trained))


@row("algorithm: RewardReader trains .*, but the BasicSampler samples with another", taught)
def replay_filled_by_another_agent(p):
    train(p, algorithm=RewardReader(p.new_agent()))


def elsewhere(p, agent):
    samples = another_buffer(p)
    with AsynchronousSampler(filled_there, agent=agent) as sampler:
        train(p, sampler, replay=NewestReplay(samples))


def filled_there():
    return built_there([FinalObservations()])


@row("sampler: expected a sampler with the agent of the algorithm", lambda p: elsewhere(p, p.agent))
def replay_filled_by_published_weights(p):
    elsewhere(p, p.new_agent())


def fragments(p, **memory):
    """Check the parts of a training on fragments, whose batches are copied into a replay."""
    transforms, handler = [FinalObservations()], TorchHandler(p.agent)
    allocate = partial(allocate_samples, p.cages, SPEC, handler, transforms)
    samples = allocate()
    buffer = p.stack.enter_context(ReplayBuffer(4))
    sampler = FragmentSampler(SPEC, buffer, handler, samples, batch_transforms=transforms)
    replay = NewestReplay(allocate(**memory) if memory else sampler.samples)
    check_parts(SPEC, sampler, RewardReader(p.agent), replay=replay)


@row("replay: expected a buffer with env.valid", lambda p: fragments(p, n_batches=4, valid=True))
def replay_of_fragments_without_valid(p):
    fragments(p, n_batches=4)


@row("replay: expected a NewestReplay of another buffer", lambda p: fragments(p, valid=True))
def replay_of_the_fragments_themselves(p):
    fragments(p)


def evaluated(p, agent):
    sampler = filled(p)
    handler = TorchHandler(agent)
    train(p, sampler, eval_sampler=p.eval_of(handler))


@row("eval_sampler: expected the .* that RewardReader trains", lambda p: evaluated(p, p.agent))
def replay_evaluated_by_another_agent(p):
    evaluated(p, p.new_agent())


def reading(p, *paths):
    sampler = filled(p)
    train(p, sampler, replay=NewestReplay(sampler.samples, paths))


@row("NewestReplay needs the field env.valid, which nothing", lambda p: reading(p, "env.done"))
def replay_misses_a_field(p):
    reading(p, "env.valid")


def shaped(p, *paths):
    p.batch_transforms = [FinalObservations(), PenaliseFalls()]
    sampler = p.sampler(n_batches=4)
    train(p, sampler, replay=NewestReplay(sampler.samples, paths))


@row("writes env.shaped_reward, which nothing reads", lambda p: shaped(p, "env.shaped_reward"))
def replay_reads_the_unshaped_reward(p):
    shaped(p, "env.reward")


@row("replay_ratio: expected a positive number of gradient steps", train)
def replay_ratio_zero(p):
    train(p, replay_ratio=0)


@row("learning_starts: expected fewer than n_steps=48, got 64", train)
def learning_starts_of_run(p):
    train(p, learning_starts=64)


@row(
    "learning_starts: expected at most 64, the environment steps that the replay holds, got 65",
    lambda p: train(p, learning_starts=64, n_steps=80),
)
def learning_starts_of_replay(p):
    train(p, learning_starts=65, n_steps=80)
