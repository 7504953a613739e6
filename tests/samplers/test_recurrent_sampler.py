from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampler_cages import (
    FORKED,
    SINGLE,
    PlacedContract,
    grouped,
    one_of,
    several,
    synchronized,
    vectorized,
)
from test_sampler_property import in_this_process, setups

from parllel.agents import NumpyHandler
from parllel.errors import EpisodeTooLongError
from parllel.samplers import AlternatingSampler, BasicSampler, FullEpisodeSampler, RecurrentSampler
from parllel.testing.dummy_agents import RecurrentCountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_transforms import RecordingStepTransform
from parllel.testing.sampler_contract import ENVIRONMENTS, check_batches, check_samples
from parllel.testing.sampler_setup import MakeCages, SamplerSetup, make_sampler
from parllel.testing.simulated_sequences import simulate_sequences
from parllel.transforms import NormalizeObservations


class TestRecurrentSampler(PlacedContract):
    choose_place = one_of(
        {
            "Cage": {**SINGLE, "storage": "shared"},
            "ProcessCage": FORKED,
            "vectorized": several(vectorized),
            "late groups": several(grouped(3, late=True)),
            "main and workers with groups": several(synchronized(2, 2, participate=True)),
        }
    )

    def make_sampler(self, setup):
        return make_sampler(RecurrentSampler, replace(setup, recurrent=True))

    def simulate(self, setup, n_batches):
        return simulate_sequences(setup, n_batches)


def check(cls, setup, n_batches):
    setup = replace(setup, recurrent=True)
    with make_sampler(cls, setup) as sampler:
        check_batches(sampler, simulate_sequences(setup, n_batches))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_samples_of_any_environments(data):
    setup = data.draw(setups(4))
    check(RecurrentSampler, replace(setup, make_cages=MakeCages(vectorized)), 4)


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_samples_are_the_same_in_cages_of_any_sizes(data):
    setup = data.draw(setups(5, fewest=2))
    check(RecurrentSampler, data.draw(in_this_process(setup)), 3)


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_samples_are_the_same_in_processes(data):
    setup = data.draw(setups(5, fewest=2))
    make = synchronized(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2)))
    check(RecurrentSampler, replace(setup, make_cages=MakeCages(make), storage="managed"), 3)


def three(length):
    return tuple(partial(CountingEnv, lengths=n, end="terminated") for n in (1, length, 3))


def test_a_batch_ends_with_its_last_environment():
    setup = SamplerSetup(6, three(4), recurrent=True)
    with make_sampler(RecurrentSampler, setup) as sampler:
        for _ in range(3):
            samples, trajs = sampler.collect_batch(0)
            valid = np.asarray(samples.env.valid)
            np.testing.assert_array_equal(valid.sum(axis=0), [1, 4, 3])
            assert len(trajs) == 3
            # Row 4 is the last observation of the longest; nothing of earlier batches is after it.
            assert np.asarray(samples.env.observation)[4, 1].any()
            assert not np.asarray(samples.env.observation)[5:].any()
            assert not np.asarray(samples.env.done)[4:].any()


class Watching(RecordingStepTransform):
    """Note which cells it is given, and how many final observations."""

    def __init__(self):
        super().__init__("watching")
        self.cells, self.n_finals = [], 0

    def transform_step(self, samples, t, columns):
        super().transform_step(samples, t, columns)
        self.cells += [(t, b) for b in range(columns.start, columns.stop)]

    def transform_final(self, observation):
        self.n_finals += len(observation)
        return super().transform_final(observation)


def test_step_transforms_are_given_environments_that_play_and_no_others():
    watching = Watching()
    ends = ("truncated", "terminated", "truncated", "truncated", "terminated")
    lengths = (2, 9, 3, 30, 1)  # who waits lies on both sides of, and between, those who play
    factories = tuple(
        partial(CountingEnv, lengths=length, end=end)
        for length, end in zip(lengths, ends, strict=True)
    )
    setup = SamplerSetup(5, factories, step_transforms=(lambda: watching,), recurrent=True)
    with make_sampler(RecurrentSampler, setup) as sampler:
        for _ in range(4):
            watching.cells, watching.n_finals = [], 0
            samples, _ = sampler.collect_batch(0)
            valid = np.asarray(samples.env.valid)
            behind = valid[-1] & ~np.asarray(samples.env.done)[-1]
            expected = np.argwhere(np.concatenate([valid, behind[np.newaxis]]))
            assert sorted(watching.cells) == [tuple(cell) for cell in expected.tolist()]
            assert watching.n_finals == np.asarray(samples.env.truncated).sum()


def test_statistics_of_observations_leave_out_environments_that_wait():
    normalize = NormalizeObservations()
    setup = SamplerSetup(5, three(9), step_transforms=(lambda: normalize,), recurrent=True)
    with make_sampler(RecurrentSampler, setup) as sampler:
        seen = []
        for _ in range(3):
            samples, _ = sampler.collect_batch(0)
            valid = np.asarray(samples.env.valid)
            assert not valid.all()
            seen.append(np.asarray(samples.env.observation)[valid].astype(np.float64))
            seen_so_far = np.concatenate(seen)
            np.testing.assert_allclose(normalize.stats["mean"], seen_so_far.mean(0), rtol=1e-9)
            np.testing.assert_allclose(normalize.stats["std"], seen_so_far.std(0), rtol=1e-6)


def test_an_agent_with_a_memory_needs_environments_that_wait():
    for cls in (BasicSampler, AlternatingSampler):
        setup = SamplerSetup(4, ENVIRONMENTS, make_cages=MakeCages(grouped(2)))
        parts = setup.build()
        agent = RecurrentCountingAgent(4, n_envs=4)
        # Both things to change at once, or the second would be another error.
        said = (
            rf"^{cls.__name__} cannot run a recurrent agent \(RecurrentCountingAgent\), .* Build the "
            r"cages with reset_automatically=False and use RecurrentSampler, which build_sampler chooses"
        )
        with pytest.raises(ValueError, match=said):
            parts.sampler(cls, handler=NumpyHandler(agent))
        parts.close()


def test_samples_without_a_mask_are_refused():
    setup = replace(SamplerSetup(4, ENVIRONMENTS), cage_options={"reset_automatically": False})
    with pytest.raises(ValueError, match=r"expected a field env\.valid, bool"):
        make_sampler(RecurrentSampler, setup)


def test_cages_that_reset_at_once_are_refused():
    with pytest.raises(ValueError, match="expected reset_automatically=False"):
        make_sampler(RecurrentSampler, SamplerSetup(4, ENVIRONMENTS))


class TestFullEpisodes:
    def test_every_batch_holds_one_whole_episode_of_each(self):
        factories = tuple(
            partial(CountingEnv, lengths=(1, 3, 7, 2), random_lengths=True, end=end)
            for end in ("terminated", "truncated", "alternate")
        )
        check(FullEpisodeSampler, SamplerSetup(7, factories), 6)

    def test_sampling_stops_with_the_longest(self):
        with make_sampler(FullEpisodeSampler, SamplerSetup(6, three(4), recurrent=True)) as sampler:
            for _ in range(2):
                samples, trajs = sampler.collect_batch(0)
                assert sorted(traj.length for traj in trajs) == [1, 3, 4]
                assert np.asarray(samples.env.done).sum() == 3

    def test_an_episode_longer_than_a_batch_is_an_error(self):
        setup = SamplerSetup(6, three(7), recurrent=True)
        with (
            make_sampler(FullEpisodeSampler, setup) as sampler,
            pytest.raises(EpisodeTooLongError, match=r"environments \[1\].*T = 6"),
        ):
            sampler.collect_batch(0)


def test_evaluation_leaves_what_is_remembered_while_sampling_alone():
    agent = RecurrentCountingAgent(4, n_envs=2)
    handler = NumpyHandler(agent)
    observation = np.array([[3.0], [4.0]], np.float32)
    handler.act(observation, slice(0, 2))
    before = agent.initial_rnn_state(slice(0, 2)).copy()
    handler.eval_mode()
    handler.reset()
    handler.act(observation, slice(0, 2))
    handler.reset_one(np.array([1]))
    np.testing.assert_array_equal(agent.initial_rnn_state(slice(0, 2)), [3, 0])
    handler.sample_mode()
    np.testing.assert_array_equal(agent.initial_rnn_state(slice(0, 2)), before)
    assert before.any()


def test_an_agent_that_was_left_in_eval_mode_forgets_what_it_sampled():
    setup = SamplerSetup(4, three(3), recurrent=True)
    with make_sampler(RecurrentSampler, setup) as sampler:
        for number, expected in enumerate(simulate_sequences(setup, 3)):
            samples, _ = sampler.collect_batch(number)
            check_samples(samples, expected)
            sampler.handler.eval_mode()
