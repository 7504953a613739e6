"""What happens to a sampler when something fails, and to garbage while it samples."""

from __future__ import annotations

import gc
import os
from functools import partial

import pytest
from sampler_cages import CAGES, FORKED, SAMPLERS, grouped, several, vectorized

from parllel.errors import WorkerError, WrongStateError
from parllel.samplers import BasicSampler, RecurrentSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_transforms import RecordingBatchTransform
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel.testing.sampler_contract import ENVIRONMENTS, check_samples
from parllel.testing.sampler_setup import SamplerSetup, make_sampler
from parllel.testing.simulated_batches import simulate

both = pytest.mark.parametrize("cls", SAMPLERS)

KINDS = {**CAGES, "late groups": several(grouped(2, late=True))}


@both
@pytest.mark.parametrize("cages", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.few(10)
def test_an_error_ends_the_sampler(cls, cages, position):
    factories = [partial(CountingEnv, lengths=20)] * 3
    factories[position] = partial(FaultyEnv, "step", number=6, lengths=20)
    with make_sampler(cls, SamplerSetup(4, tuple(factories), **cages)) as sampler:
        sampler.collect_batch(0)
        with pytest.raises(DummyFaultError, match="step number 6 failed"):
            sampler.collect_batch(12)
        assert gc.isenabled()
        with pytest.raises(WrongStateError, match="an error ended the last batch halfway"):
            sampler.collect_batch(24)


class DyingEnv(CountingEnv):
    def step(self, action):
        if len(self.actions) == 5:
            os._exit(3)
        return super().step(action)


@both
@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize("kind", ["ProcessCage", "SynchronizedProcessCage"])
@pytest.mark.few(3)
def test_a_worker_that_dies_does_not_hang_the_sampler(cls, kind, position):
    factories = [partial(CountingEnv, lengths=20)] * 3
    factories[position] = partial(DyingEnv, lengths=20)
    with make_sampler(cls, SamplerSetup(4, tuple(factories), **CAGES[kind])) as sampler:
        sampler.collect_batch(0)
        with pytest.raises(WorkerError, match="exited with code 3"):
            sampler.collect_batch(12)


@both
def test_an_agent_that_raises_while_environments_step_ends_the_sampler(cls):
    setup = SamplerSetup(4, (CountingEnv,) * 3, **FORKED)
    with make_sampler(cls, setup) as sampler:
        sampler.collect_batch(0)
        agent = sampler.handler.agent
        agent.value = agent.step = failing(agent.step, 4)
        with pytest.raises(RuntimeError, match="agent gave up"):
            sampler.collect_batch(12)
        assert gc.isenabled()


def failing(step, calls):
    left = iter(range(calls))

    def fail_in_the_end(*args, **kwargs):
        if next(left, None) is None:
            raise RuntimeError("agent gave up")
        return step(*args, **kwargs)

    return fail_in_the_end


@both
def test_a_batch_transform_that_raises_leaves_the_sampler_usable(cls):
    # Sampling was done by then: environments and buffer fit each other.
    class Refusing(RecordingBatchTransform):
        def transform_batch(self, samples):
            self.calls.append("batch")
            if len(self.calls) == 1:
                raise ValueError("not this one")

    setup = SamplerSetup(3, ENVIRONMENTS, batch_transforms=(partial(Refusing, "refusing"),))
    with make_sampler(cls, setup) as sampler:
        with pytest.raises(ValueError, match="not this one"):
            sampler.collect_batch(0)
        sampler.collect_batch(12)


def test_a_first_reset_that_fails_can_be_tried_again():
    faulty, sound = partial(FaultyEnv, "reset", lengths=3), partial(CountingEnv, lengths=3)
    with make_sampler(BasicSampler, SamplerSetup(4, (faulty, CountingEnv))) as sampler:
        with pytest.raises(DummyFaultError, match="reset number 1 failed"):
            sampler.collect_batch(0)
        for expected in simulate(SamplerSetup(4, (sound, CountingEnv)), 2):
            check_samples(sampler.collect_batch(0)[0], expected)


def test_a_later_reset_that_fails_ends_the_sampler():
    # The rows after the last batch have been carried to the front by then, which must not be done twice.
    faulty = partial(FaultyEnv, "reset", number=2, lengths=3)
    setup = SamplerSetup(4, (faulty, CountingEnv), recurrent=True)
    with make_sampler(RecurrentSampler, setup) as sampler:
        sampler.collect_batch(0)
        with pytest.raises(DummyFaultError, match="reset number 2 failed"):
            sampler.collect_batch(8)
        for method in (partial(sampler.collect_batch, 16), sampler.state):
            with pytest.raises(WrongStateError, match="an error ended the last batch halfway"):
                method()


# ---------------------------------------------------------------------- garbage


class WatchingEnv(CountingEnv):
    """Says in its info whether the garbage collector is on."""

    seen: list[bool] = []

    def step(self, action):
        self.seen.append(gc.isenabled())
        return super().step(action)


@both
@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_rests_during_a_batch(cls, enabled):
    seen = WatchingEnv.seen
    seen.clear()
    cages = several(vectorized, (1, 1))
    with make_sampler(cls, SamplerSetup(3, (WatchingEnv,) * 2, **cages)) as sampler:
        if not enabled:
            gc.disable()
        try:
            sampler.collect_batch(0)
            assert gc.isenabled() is enabled
            sampler.collect_batch(0)
            assert gc.isenabled() is enabled
        finally:
            gc.enable()
    assert seen == [False] * 12


@both
def test_garbage_of_a_batch_is_collected_after_it(cls):
    class Littering(CountingEnv):
        def step(self, action):
            for _ in range(50):
                loop = []
                loop.append(loop)
            return super().step(action)

    cages = several(vectorized, (1, 1))
    with make_sampler(cls, SamplerSetup(50, (Littering,) * 2, **cages)) as sampler:
        before = collections()
        sampler.collect_batch(0)
        for _ in range(2000):  # a few allocations later
            _ = [[]]
        assert collections() > before


def collections():
    """Return how often the collector has run, whichever generation was due."""
    return sum(generation["collections"] for generation in gc.get_stats())
