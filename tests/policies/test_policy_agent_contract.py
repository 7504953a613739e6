"""Every sampler with a policy in the place of its agent."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from counting_policies import actions_alone, with_policy

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
from parllel.testing.sampler_contract import (
    ENVIRONMENTS,
    SamplerContract,
    check_samples,
    check_trajs,
)
from parllel.testing.sampler_setup import MakeCages, SamplerSetup, make_sampler
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
    changes = {"make_cages": MakeCages(in_workers)}
    fewest = 2


class TestRecurrent(PolicyContract):
    sampler_class = RecurrentSampler
    changes = {"make_cages": MakeCages(vectorized)}

    def simulate(self, setup, n_batches):
        return actions_alone(simulate_sequences(setup, n_batches))


class InnerStats(AsynchronousSampler):
    """The contract knows the stats of the wrapped sampler."""

    @property
    def stats(self):
        return {name: value for name, value in super().stats.items() if "/" in name}


class TestAsynchronous(PolicyContract):
    # Its environments are a batch ahead, and their states are not kept.
    test_another_sampler_goes_on_from_its_state = None

    def make_sampler(self, setup):
        build = partial(make_sampler, self.sampler_class, setup)
        return InnerStats(build, start_method="fork", timeout_s=20.0)


class TestAsynchronousRecurrent(TestAsynchronous, TestRecurrent):
    pass


class TestFullEpisode(TestRecurrent):
    sampler_class = FullEpisodeSampler

    def adapt(self, setup):
        return super().adapt(as_long_as_batches(setup))

    def simulate(self, setup, n_batches):
        return super().simulate(as_long_as_batches(setup), n_batches)


def as_long_as_batches(setup):
    """Cut episodes, so that a batch holds each of them whole."""
    factories = []
    for make in setup.factories:
        lengths = np.minimum(make.keywords["lengths"], setup.T).tolist()
        factories.append(partial(make, lengths=lengths))
    return replace(setup, factories=tuple(factories))


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
