from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampler_cages import FORKED, SINGLE, PlacedContract, one_of, several, synchronized, vectorized
from test_sampler_property import setups

from parllel.agents import NumpyHandler
from parllel.errors import WrongStateError
from parllel.samplers import RolloutSampler
from parllel.testing.dummy_transforms import RecordingStepTransform
from parllel.testing.faulty_envs import DummyFaultError
from parllel.testing.sampler_contract import DOUBLED, ENVIRONMENTS, check_batches
from parllel.testing.sampler_setup import MakeCages, SamplerSetup
from parllel.testing.simulated_batches import simulate


class OwnAgent:
    """Act with an agent made in the worker, which draws the noise of all columns as that of main does."""

    def __init__(self, make_agent, fails_at=None):
        self.handler = NumpyHandler(make_agent())
        self.fails_at, self.batch = fails_at, -1

    def bind(self, samples, columns):
        self.handler.bind(samples)
        self.columns = columns

    def start_batch(self):
        self.batch += 1
        self.handler.start_batch()

    def step(self, t):
        if (self.batch, t) == self.fails_at:
            raise DummyFaultError("policy", t)
        self.handler.step(t, self.columns)


def make_rollouts(setup, fails_at=None, **options):
    parts = setup.build()
    try:
        for cage in parts.cages:
            cage.set_policy(partial(OwnAgent, setup.agent, fails_at))
        return parts.sampler(RolloutSampler, **options)
    except BaseException:
        parts.close()
        raise


class TestRollouts(PlacedContract):
    """Those of a plain loop; without step transforms, which are refused."""

    test_statistics_move_between_batches = None
    test_state_holds_that_of_the_transforms = None
    test_state_of_other_transforms_is_refused = None
    # The agents of the workers draw for themselves here; tests/runners/test_resume.py has a small policy.
    test_another_sampler_goes_on_from_its_state = None

    choose_place = one_of(
        {
            "worker": several(synchronized(1)),
            "workers": several(synchronized(3)),
            "groups": several(synchronized(2, 2)),
            "main and worker": several(synchronized(1, participate=True)),
            "main and workers, groups": several(synchronized(2, 3, participate=True)),
        }
    )

    def check(self, setup, n_batches):
        super().check(replace(setup, step_transforms=()), n_batches)

    def make_sampler(self, setup):
        return make_rollouts(setup)


def test_several_cages():
    make_cages = MakeCages(synchronized(1, participate=True), (1, 3))
    check(SamplerSetup(4, ENVIRONMENTS, make_cages=make_cages), 3)


def check(setup, n_batches, **options):
    expected = simulate(setup, n_batches, **options)
    with make_rollouts(setup, **options) as sampler:
        check_batches(sampler, expected)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    setup=setups(6),
    workers=st.integers(1, 3),
    groups=st.integers(1, 3),
    participate=st.booleans(),
    storage=st.sampled_from(["local", "shared", "managed"]),
    steps=st.integers(0, 5),
)
def test_rollouts_are_what_a_plain_loop_does(setup, workers, groups, participate, storage, steps):
    make = synchronized(workers, groups, participate)
    placed = replace(setup, step_transforms=(), storage=storage, make_cages=MakeCages(make))
    check(placed, 3, decorrelation_steps=steps, decorrelation_seed=1)


def test_step_transforms_are_refused():
    setup = SamplerSetup(
        3, ENVIRONMENTS, step_transforms=(DOUBLED,), make_cages=MakeCages(synchronized(1))
    )
    with pytest.raises(ValueError, match=r"step_transforms: expected none.*use BasicSampler"):
        make_rollouts(setup)
    assert isinstance(DOUBLED(), RecordingStepTransform)


@pytest.mark.parametrize(
    "cages",
    [SINGLE, FORKED, *({"make_cages": MakeCages(make)} for make in (vectorized, synchronized(1)))],
    ids=["Cage", "ProcessCage", "VectorizedCage", "SynchronizedProcessCage"],
)
def test_every_cage_needs_a_policy(cages):
    parts = SamplerSetup(3, ENVIRONMENTS, **cages).build()
    try:
        with pytest.raises(
            ValueError,
            match=r"cage 0 \(CountingEnv\): expected a cage with a policy, got a \w*Cage",
        ):
            parts.sampler(RolloutSampler)
    finally:
        parts.close()


@pytest.mark.parametrize("participate", [False, True])
def test_a_policy_that_raises_leaves_the_rest_closable(participate):
    make = MakeCages(synchronized(2, participate=participate))
    setup = SamplerSetup(4, ENVIRONMENTS, make_cages=make)
    with make_rollouts(setup, fails_at=(1, 2)) as sampler:
        samples, _ = sampler.collect_batch(0)
        first = np.array(samples.env.reward)
        with pytest.raises(DummyFaultError, match="policy number 2 failed"):
            sampler.collect_batch(16)
        with pytest.raises(WrongStateError, match="an error ended the last batch halfway"):
            sampler.collect_batch(32)
        assert first.any()
