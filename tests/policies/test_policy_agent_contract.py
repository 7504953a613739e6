"""Every sampler with a policy in the place of its agent."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from counting_policies import actions_alone, make_sampler, with_policy

from parllel.agents import NumpyHandler
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.samplers import (
    AlternatingSampler,
    AsynchronousSampler,
    BasicSampler,
    EvalSampler,
    FullEpisodeSampler,
    RecurrentSampler,
)
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_contract import (
    ENVIRONMENTS,
    SamplerContract,
    check_samples,
    check_trajs,
)
from parllel.testing.sampler_setup import CagesOf, SamplerSetup
from parllel.testing.simulated_sequences import simulate_sequences


def vectorized(factories, buffers=None, **options):
    return VectorizedCage(factories, **options)


def in_workers(factories, **options):
    options["start_method"] = "fork"
    return SynchronizedProcessCage(
        factories, n_workers=1, n_groups=min(2, len(factories)), **options
    )


class PolicyContract(SamplerContract):
    sampler_class = BasicSampler
    changes = {}

    def adapt(self, setup):
        recurrent = not self.sampler_class.resets_automatically
        return with_policy(setup, recurrent=recurrent, **self.changes)

    def make_sampler(self, setup):
        return make_sampler(self.sampler_class, setup)

    def simulate(self, setup, n_batches):
        return actions_alone(super().simulate(setup, n_batches))


class TestBasic(PolicyContract):
    pass


class TestAlternating(PolicyContract):
    sampler_class = AlternatingSampler
    changes = {"make_cages": CagesOf(in_workers)}
    fewest = 2


class TestRecurrent(PolicyContract):
    sampler_class = RecurrentSampler
    changes = {"make_cages": CagesOf(vectorized)}

    def simulate(self, setup, n_batches):
        return actions_alone(simulate_sequences(setup, n_batches))


def test_an_asynchronous_sampler_returns_the_batches_of_the_sampler_in_it():
    class Asynchronous(PolicyContract):
        def make_sampler(self, setup):
            build = partial(make_sampler, BasicSampler, setup)
            return AsynchronousSampler(build, start_method="fork", timeout_s=20.0)

    Asynchronous().test_batches_are_those_of_a_plain_loop()


def test_batches_of_whole_episodes():
    class FullEpisode(TestRecurrent):
        sampler_class = FullEpisodeSampler

    lengths = tuple(partial(CountingEnv, lengths=n) for n in (3, 5, 1))
    FullEpisode().check(SamplerSetup(5, lengths), 3)


@pytest.mark.parametrize("number", [0, 2])
def test_evaluations_leave_alone_what_is_remembered_in_sampling(number):
    """And sampling leaves alone what evaluations play, as they are told apart by their numbers."""
    setup = with_policy(SamplerSetup(4, ENVIRONMENTS), recurrent=True)
    expected = actions_alone(simulate_sequences(setup, 3))
    # Environments of an evaluation reset themselves, and its batch is one row.
    evaluated = with_policy(SamplerSetup(1, ENVIRONMENTS, seed=9)).build()
    plain = with_policy(SamplerSetup(1, ENVIRONMENTS, seed=9), recurrent=True)
    with make_sampler(RecurrentSampler, setup) as sampler:
        evaluation = EvalSampler(evaluated.cages, sampler.handler, evaluated.samples, 8)
        returns = []
        with evaluation:
            for batch, wanted in enumerate(expected):
                if batch >= number:
                    returns.append([traj.return_ for traj in evaluation.collect_batch(0)[1]])
                samples, trajs = sampler.collect_batch(0)
                check_samples(samples, wanted)
                check_trajs(trajs, wanted)
    assert returns == evaluations_alone(plain, 8, len(returns))


def evaluations_alone(setup, n_episodes, n):
    """Return the returns of evaluations of an agent that has sampled nothing."""
    handler = NumpyHandler(setup.agent())
    parts = replace(setup, recurrent=False).build()
    with EvalSampler(parts.cages, handler, parts.samples, n_episodes) as evaluation:
        return [[traj.return_ for traj in evaluation.collect_batch(0)[1]] for _ in range(n)]
