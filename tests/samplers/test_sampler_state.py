from __future__ import annotations

import time
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from sampler_cages import FORKED, SINGLE

from parllel.cages import TrajInfo
from parllel.samplers import BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_transforms import RecordingBatchTransform
from parllel.testing.sampler_contract import DOUBLED, SCALED, check_samples
from parllel.testing.sampler_setup import SamplerSetup, make_sampler
from parllel.testing.simulated_batches import simulate
from parllel.transforms import NormalizeRewards

LONG = (partial(CountingEnv, 7), partial(CountingEnv, 4))
DISCOUNT = 0.75


class SeenTrajInfo(TrajInfo):
    """Keeps what no file can hold."""

    def __init__(self):
        super().__init__()
        self._seen = set()

    def step(self, *arguments):
        super().step(*arguments)
        self._seen.add(self.length)


class Stateless(gym.Wrapper):
    """Does not offer its state."""

    def __init__(self, env):
        super().__init__(env)
        self.secret = 0


def make_stateless():
    return Stateless(CountingEnv(4))


def state_after(setup, n_batches=2, **options):
    with make_sampler(BasicSampler, setup) as sampler:
        for batch in range(n_batches):
            sampler.collect_batch(batch)
        return sampler.state(**options)


def discounted_sums(samples, carried):
    """Return the discounted sums of past rewards, step by step, as `carried` goes on."""
    reward, done = np.asarray(samples.env.reward), np.asarray(samples.env.done)
    sums = []
    for t in range(len(reward)):
        for b in range(reward.shape[1]):
            carried[b] = carried[b] * DISCOUNT + float(reward[t, b])
            sums.append(carried[b])
            if done[t, b]:
                carried[b] = 0.0
    return sums


def test_episodes_that_begin_anew_carry_no_returns_of_those_that_were_cut_short():
    setup = SamplerSetup(3, LONG, batch_transforms=(partial(NormalizeRewards, DISCOUNT),))
    sums, carried = [], [0.0, 0.0]
    with make_sampler(BasicSampler, setup) as sampler:
        for batch in range(2):
            sums += discounted_sums(sampler.collect_batch(batch)[0], carried)
        assert all(carried), "no episode is in progress: this test shows nothing"
        state = sampler.state(environments=False)
    carried = [0.0, 0.0]
    with make_sampler(BasicSampler, setup) as sampler:
        sampler.load_state(state)
        for batch in (2, 3):
            sums += discounted_sums(sampler.collect_batch(batch)[0], carried)
            stats = sampler.stats
            np.testing.assert_allclose(stats["NormalizeRewards/mean"], np.mean(sums), rtol=1e-9)
            np.testing.assert_allclose(stats["NormalizeRewards/std"], np.std(sums), rtol=1e-9)


@pytest.mark.parametrize("placement", [SINGLE, FORKED], ids=["here", "there"])
def test_what_no_file_can_hold_is_an_error_before_the_first_batch(placement):
    options = {**placement.get("cage_options", {}), "traj_info": SeenTrajInfo}
    setup = SamplerSetup(3, LONG, **{**placement, "cage_options": options})
    with (
        make_sampler(BasicSampler, setup) as sampler,
        pytest.raises(TypeError, match=r"SeenTrajInfo\.state\(\)\['_seen'\]: expected numbers"),
    ):
        sampler.state()


class MeetingEnv(CountingEnv):
    """Says its state only when others are asked for theirs at the same time."""

    def __init__(self, folder, number, n):
        super().__init__(4)
        self.folder, self.number, self.n = folder, number, n

    def state(self):
        (self.folder / str(self.number)).touch()
        deadline = time.monotonic() + 30.0
        while len(list(self.folder.iterdir())) < self.n:
            if time.monotonic() > deadline:
                raise TimeoutError("nobody else was asked")
            time.sleep(0.001)
        return super().state()


def test_processes_are_asked_side_by_side(tmp_path):
    factories = tuple(partial(MeetingEnv, tmp_path, i, 2) for i in range(2))
    with make_sampler(BasicSampler, SamplerSetup(3, factories, **FORKED)) as sampler:
        sampler.collect_batch(0)
        assert len(sampler.state()["environments"]) == 2


class RefusingEnv(CountingEnv):
    """Does not say its state in the first episode."""

    def state(self):
        if self._episode == 0:
            raise ValueError("not yet")
        return super().state()


@pytest.mark.parametrize("position", [0, 1])
def test_one_that_cannot_be_asked_leaves_the_others_well(position):
    factories = [partial(CountingEnv, 4)] * 2
    factories[position] = partial(RefusingEnv, 4)
    setup = SamplerSetup(3, tuple(factories), **FORKED)
    with make_sampler(BasicSampler, setup) as sampler:
        for batch, expected in enumerate(simulate(setup, 3)):
            if batch == 1:
                with pytest.raises(ValueError, match="not yet"):
                    sampler.state()
            check_samples(sampler.collect_batch(batch)[0], expected)
        assert len(sampler.state()["environments"]) == 2


def test_environments_without_a_state_are_named_before_the_first_batch():
    setup = SamplerSetup(3, (CountingEnv, make_stateless))
    with make_sampler(BasicSampler, setup) as sampler:
        state = sampler.state()
        ((name, count),) = sampler.unsaved_environments.items()
    assert name.startswith("Stateless<CountingEnv>: its state cannot be saved")
    assert count == 1
    # Nothing has begun yet, so nothing is lost: another one begins as this one would have.
    with make_sampler(BasicSampler, setup) as sampler:
        sampler.load_state(state)
        for expected in simulate(setup, 2):
            check_samples(sampler.collect_batch(0)[0], expected)


def test_the_state_of_other_transforms_is_refused_though_they_are_as_many():
    state = state_after(SamplerSetup(3, LONG, step_transforms=(DOUBLED,)))
    with (
        make_sampler(BasicSampler, SamplerSetup(3, LONG, batch_transforms=(SCALED,))) as sampler,
        pytest.raises(
            ValueError, match=r"expected .*'RecordingBatchTransform'.*, got .*StepTransform"
        ),
    ):
        sampler.load_state(state)


def test_the_rows_of_other_fields_are_refused_by_name():
    setup = SamplerSetup(3, LONG, step_transforms=(DOUBLED,))
    other = SamplerSetup(3, LONG, step_transforms=(partial(DOUBLED, target="agent.other"),))
    state = state_after(setup)
    with (
        make_sampler(BasicSampler, other) as sampler,
        pytest.raises(
            ValueError, match=r"samples: expected .*agent\.other.*, got .*agent\.doubled"
        ),
    ):
        sampler.load_state(state)
    state["edges"]["agent.observation"] = [np.zeros(2)]
    with (
        make_sampler(BasicSampler, setup) as sampler,
        pytest.raises(ValueError, match=r"samples\.agent\.observation: edge rows: expected"),
    ):
        sampler.load_state(state)


def test_the_length_of_a_batch_may_change():
    factories = (partial(CountingEnv, (3, 5)), partial(CountingEnv, 4))
    setup = SamplerSetup(4, factories)
    with make_sampler(BasicSampler, setup) as sampler:
        for batch in range(3):
            sampler.collect_batch(batch)
        state, agent = sampler.state(), sampler.handler.agent.state()
        observations = np.array(sampler.collect_batch(3)[0].env.observation)
    with make_sampler(BasicSampler, SamplerSetup(2, factories, seed=9)) as sampler:
        sampler.load_state(state)
        sampler.handler.agent.load_state(agent)
        first = np.array(sampler.collect_batch(3)[0].env.observation)
    np.testing.assert_array_equal(first, observations[:2])


class ForgettingTransform(RecordingBatchTransform):
    """Notes what it is told to forget."""

    def __init__(self):
        super().__init__("forgetting")

    def forget(self, columns):
        self.calls.append(("forget", columns.tolist()))


def test_transforms_are_told_once_whose_episodes_begin_anew():
    setup = SamplerSetup(3, (CountingEnv, make_stateless), batch_transforms=(ForgettingTransform,))
    for options, columns in (({}, [1]), ({"environments": False}, [0, 1])):
        state = state_after(setup, **options)
        with make_sampler(BasicSampler, setup) as sampler:
            sampler.load_state(state)
            for batch in (2, 3):
                sampler.collect_batch(batch)
            (transform,) = sampler.batch_transforms
        batch = ("forgetting", "batch")
        assert transform.calls == [("forget", columns), batch, batch]
