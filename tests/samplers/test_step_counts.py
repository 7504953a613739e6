"""How many environment steps a batch holds: what was sampled, not what there is room for."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from sampler_cages import vectorized

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.algos import Algorithm
from parllel.logging import Logger
from parllel.runners import OnPolicyRunner
from parllel.samplers import (
    AsynchronousSampler,
    BasicSampler,
    CageColumns,
    RecurrentSampler,
    Sampler,
)
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel_patterns import allocate_samples

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

SPEC = BatchSpec(T=6, B=2)
LENGTHS = (2, 6, 1, 4)


class UntilTheFirstEnd(Sampler):
    """A sampler of a user: it stops when an episode ends, and returns the rows that it filled."""

    def __init__(self, batch_spec, cages, handler, samples):
        self.T, self.all_envs = batch_spec.T, slice(0, batch_spec.B)
        self.cages, self.handler, self.samples = CageColumns(cages, batch_spec.B), handler, samples
        self.asked = []
        self.cages.bind(samples)
        handler.bind(samples)

    def collect_batch(self, elapsed_steps):
        self.asked.append(elapsed_steps)
        self.cages.reset(0, all_envs=True)
        self.handler.start_batch()
        for t in range(self.T):
            self.handler.step(t, self.all_envs)
            self.cages.step(t)
            if np.asarray(self.samples.env.done)[t].any():
                break
        self.cages.final_observations()
        samples = self.samples if t + 1 == self.T else self.samples[: t + 1]
        return samples, self.cages.completed_trajs()

    @property
    def stats(self):
        return {"asked": self.asked[-1] if self.asked else None}

    def close(self):
        self.cages.close()


class Whole(UntilTheFirstEnd):
    """The same, which returns all rows, and says how many count."""

    def collect_batch(self, elapsed_steps):
        samples, trajs = super().collect_batch(elapsed_steps)
        self.filled = len(samples.env.reward)
        return self.samples, trajs

    def count_steps(self, samples):
        return self.filled * SPEC.B


def build(cls, lengths=LENGTHS, reset_automatically=True, **options):
    # Two resets at once: the one at an end, and the one of the next batch.
    twice = (
        [n for length in lengths for n in (length, 9)] if cls is not RecurrentSampler else lengths
    )
    factory = partial(CountingEnv, twice)
    cages = [vectorized([factory] * SPEC.B, seeds=[0, 1], reset_automatically=reset_automatically)]
    handler = NumpyHandler(CountingAgent(4))
    samples = allocate_samples(cages, SPEC, handler, **options)
    return cls(SPEC, cages, handler, samples)


class Noting(Algorithm):
    agent = None

    def __init__(self):
        self.elapsed, self.rows = [], []

    def optimize_agent(self, elapsed_steps, samples):
        self.elapsed.append(elapsed_steps)
        self.rows.append(samples.env.reward.shape)
        return {}


def run(runner_class, sampler, n_steps):
    algorithm = Noting()
    runner = runner_class(
        SPEC, sampler, algorithm, n_steps=n_steps, log_interval_steps=100, logger=Logger([])
    )
    assert runner.run().elapsed_steps == algorithm.elapsed[-1]
    return algorithm


@pytest.mark.parametrize("cls", [UntilTheFirstEnd, Whole])
def test_a_runner_counts_the_rows_that_were_filled(cls):
    with build(cls) as sampler:
        algorithm = run(OnPolicyRunner, sampler, 26)
    assert algorithm.elapsed == [4, 16, 18, 26]
    whole = [(6, 2)] * 4
    assert algorithm.rows == (whole if cls is Whole else [(2, 2), (6, 2), (1, 2), (4, 2)])


def test_a_mask_counts_before_rows():
    with build(RecurrentSampler, (2, 6, 1), reset_automatically=False) as sampler:
        algorithm = run(OnPolicyRunner, sampler, 18)
    assert algorithm.elapsed == [4, 16, 18]


def test_a_full_batch_counts_in_full():
    with build(BasicSampler) as sampler:
        samples, _ = sampler.collect_batch(0)
        assert sampler.count_steps(samples) == SPEC.size
        assert sampler.count_steps(samples[2:5]) == 3 * SPEC.B


def test_what_is_no_batch_of_samples_is_to_be_counted_by_its_sampler():
    with (
        build(BasicSampler) as sampler,
        pytest.raises(
            TypeError, match=r"BasicSampler: expected Samples, got ndarray; override count_steps"
        ),
    ):
        sampler.count_steps(np.zeros(3))


@pytest.mark.parametrize("cls", [UntilTheFirstEnd, Whole])
@pytest.mark.parametrize("max_staleness", [0, 1])
@pytest.mark.parametrize("lengths", [LENGTHS, (6, 2, 1, 4)], ids=["short first", "whole first"])
def test_short_batches_of_another_process(cls, max_staleness, lengths):
    options = {"max_staleness": max_staleness, "start_method": "fork"}
    with (
        build(cls, lengths) as alone,
        AsynchronousSampler(partial(build, cls, lengths), **options) as sampler,
    ):
        elapsed = 0
        for length in lengths:
            expected, expected_trajs = alone.collect_batch(elapsed)
            samples, trajs = sampler.collect_batch(elapsed)
            # Also of a batch that was made ahead, since the one before was there to be counted.
            assert sampler.stats["asked"] == elapsed
            elapsed += sampler.count_steps(samples)
            assert sampler.count_steps(samples) == alone.count_steps(expected) == length * SPEC.B
            for name in ("reward", "observation", "done"):
                found = np.asarray(getattr(samples.env, name))
                np.testing.assert_array_equal(found, np.asarray(getattr(expected.env, name)))
            assert [traj.length for traj in trajs] == [traj.length for traj in expected_trajs]


def test_a_run_counts_short_batches_of_another_process():
    with AsynchronousSampler(partial(build, UntilTheFirstEnd), start_method="fork") as sampler:
        algorithm = run(OnPolicyRunner, sampler, 26)
    assert algorithm.elapsed == [4, 16, 18, 26]
    assert algorithm.rows == [(2, 2), (6, 2), (1, 2), (4, 2)]


class TwoBuffers(Sampler):
    def __init__(self):
        self.parts = [build(BasicSampler), build(BasicSampler)]
        self.turn = 0

    def collect_batch(self, elapsed_steps):
        self.turn += 1
        samples, trajs = self.parts[self.turn % 2].collect_batch(elapsed_steps)
        return (samples if self.turn < 3 else samples[:, :1]), trajs

    def close(self):
        for part in self.parts:
            part.close()


def test_batches_that_do_not_fit_the_first_are_refused():
    message = r"agent\.action: expected at most 6 rows of \(2,\) as in the first batch, got \(6, 1"
    with AsynchronousSampler(TwoBuffers, start_method="fork") as sampler:
        sampler.collect_batch(0)
        sampler.collect_batch(12)
        with pytest.raises(ValueError, match=message):
            sampler.collect_batch(24)
