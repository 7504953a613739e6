"""An AsynchronousSampler returns what the sampler in it would: the contract, over all that it can wrap."""

from __future__ import annotations

from functools import partial

import pytest
from asynchronous_parts import FOUR, asynchronous, build, compiled_before, switching
from sampler_cages import (
    FORKED,
    PlacedContract,
    assert_same,
    one_of,
    several,
    synchronized,
    vectorized,
    with_cages,
)
from start_methods import SENT_SPAWN_SOAKS

from parllel.samplers import (
    AlternatingSampler,
    AsynchronousSampler,
    BasicSampler,
    RecurrentSampler,
    RolloutSampler,
)
from parllel.testing.sampler_contract import check_batches
from parllel.testing.sampler_setup import SamplerSetup
from parllel.testing.simulated_batches import simulate
from parllel.testing.transform_samples import numbers_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
__all__ = ["compiled_before"]


class InnerStats(AsynchronousSampler):
    """The contract knows the stats of the wrapped sampler."""

    @property
    def stats(self):
        return {name: value for name, value in super().stats.items() if "/" in name}


class AsynchronousContract(PlacedContract):
    inner = BasicSampler
    max_staleness = 1
    # Its environments are a batch ahead, and their states are not kept.
    test_another_sampler_goes_on_from_its_state = None

    def adapt(self, setup):
        return switching(super().adapt(setup))

    def make_sampler(self, setup):
        return asynchronous(
            setup, self.inner, sampler_class=InnerStats, max_staleness=self.max_staleness
        )


class TestBasic(AsynchronousContract):
    choose_place = one_of(
        {
            "Cage": {},
            "ProcessCage": {**FORKED, "storage": "managed"},
            "SynchronizedProcessCage": several(synchronized(2)),
        }
    )


class TestBasicCopied(AsynchronousContract):
    """Samples are copied after the wrapped sampler is done, so cages make no difference to it."""

    def adapt(self, setup):
        return setup


class TestBasicWithoutOverlap(AsynchronousContract):
    max_staleness = 0


class TestAlternatingOverWorkers(AsynchronousContract):
    inner = AlternatingSampler
    fewest = 2
    place = several(synchronized(1, 2))


# ---------------------------------------------------------------------- other samplers, other starts


@pytest.mark.parametrize("in_place", [False, True])
def test_recurrent_batches_are_those_of_the_sampler_alone(in_place):
    setup = with_cages(SamplerSetup(4, FOUR, recurrent=True), vectorized)
    with (
        build(setup, RecurrentSampler) as alone,
        asynchronous(switching(setup) if in_place else setup, RecurrentSampler) as sampler,
    ):
        for _ in range(6):
            expected, expected_trajs = alone.collect_batch(0)
            samples, trajs = sampler.collect_batch(0)
            assert_same(numbers_of(samples), numbers_of(expected))
            assert [vars(traj) for traj in trajs] == [vars(traj) for traj in expected_trajs]


@pytest.mark.parametrize("start_method", SENT_SPAWN_SOAKS)
def test_other_start_methods(start_method):
    setup = switching(with_cages(SamplerSetup(3, FOUR), synchronized(2, 1, False, start_method)))
    # A new interpreter imports PyTorch, with other tests beside it.
    with asynchronous(setup, start_method=start_method, timeout_s=50.0) as sampler:
        check_batches(sampler, simulate(setup, 3))


def rollout(switching_buffer):
    """Build a RolloutSampler of CartPole over one worker, in the sampling process."""
    import gymnasium as gym

    from parllel import BatchSpec, Seeds
    from parllel.samplers import Plan
    from parllel.torch import CategoricalHead, CategoricalPgAgent, PgModel, SmallPolicyHandler
    from parllel_patterns import allocate_samples, build_cages

    spec = BatchSpec(8, 4)
    cages = build_cages(partial(gym.make, "CartPole-v1"), 4, seeds=Seeds(0), parallel=Plan(1, 2))
    model = PgModel((4,), CategoricalHead(2), [8, 8], seed=1)
    handler = SmallPolicyHandler(CategoricalPgAgent(model, 2, seed=2))
    samples = allocate_samples(cages, spec, handler, noise=True, switching=switching_buffer)
    cages[0].set_policy(handler.worker_policy())
    return RolloutSampler(spec, cages, handler, samples)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.few(1)
def test_rollout_batches_are_those_of_the_sampler_alone(in_place):
    with (
        rollout(False) as alone,
        AsynchronousSampler(partial(rollout, in_place), timeout_s=50) as sampler,
    ):
        for _ in range(4):
            expected, _ = alone.collect_batch(0)
            samples, _ = sampler.collect_batch(0)
            assert_same(numbers_of(samples), numbers_of(expected))
