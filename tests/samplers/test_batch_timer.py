from __future__ import annotations

import time
from functools import partial

import pytest

from parllel.samplers import BasicSampler, BatchTimer
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_setup import SamplerSetup


@pytest.fixture
def sampler():
    parts = SamplerSetup(5, (partial(CountingEnv, 3), partial(CountingEnv, 4))).build()
    with BasicSampler(parts.batch_spec, parts.cages, parts.handler, parts.samples) as sampler:
        yield sampler


def test_the_parts_add_up_and_the_sampler_is_left_as_it_was(sampler):
    before = set(vars(sampler))
    begin = time.perf_counter()
    with BatchTimer(sampler) as timer:
        sampler.collect_batch(0)
    total = time.perf_counter() - begin
    assert set(timer.seconds) == {"inference", "waiting", "transforms"}
    assert all(seconds > 0 for seconds in timer.seconds.values())
    assert sum(timer.seconds.values()) <= total
    assert set(vars(sampler)) == before


def test_time_in_the_agent_is_inference(sampler):
    step = sampler.handler.step

    def slow_step(t, columns):
        time.sleep(0.01)
        step(t, columns)

    sampler.handler.step = slow_step
    with BatchTimer(sampler) as timer:
        sampler.collect_batch(0)
    assert timer.seconds["inference"] >= 0.05  # five rows


def test_a_sampler_may_name_the_arguments(sampler):
    class Naming(BasicSampler):
        def collect_batch(self, elapsed_steps):
            everyone = self.cages.everyone
            with self.batch():
                for t in range(self.batch_spec.T):
                    self.act(columns=everyone.columns, t=t)
                    everyone.start_row(t)
                    everyone.finish_row()
                return self.finish()

    sampler.__class__ = Naming
    with BatchTimer(sampler) as timer:
        sampler.collect_batch(0)
    assert timer.seconds["inference"] > 0


def test_an_error_leaves_no_clock_behind(sampler):
    def fail(t, columns):
        raise ZeroDivisionError("on purpose")

    before = set(vars(sampler))
    sampler.handler.step = fail
    with pytest.raises(ZeroDivisionError, match="on purpose"), BatchTimer(sampler):
        sampler.collect_batch(0)
    assert set(vars(sampler)) == before
