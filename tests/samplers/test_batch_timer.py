from __future__ import annotations

import time
from functools import partial

import pytest

from parllel.samplers import BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_setup import SamplerSetup


@pytest.fixture
def sampler():
    parts = SamplerSetup(5, (partial(CountingEnv, 3), partial(CountingEnv, 4))).build()
    with parts.sampler(BasicSampler) as sampler:
        yield sampler


def test_the_parts_add_up_to_the_batch(sampler):
    begin = time.perf_counter()
    samples, trajs, seconds = sampler.collect_timed_batch(0)
    total = time.perf_counter() - begin
    assert samples is sampler.samples
    assert [traj.length for traj in trajs] == [3, 4]
    assert set(seconds) == {"inference", "environments", "transforms"}
    assert all(part > 0 for part in seconds.values())
    assert sum(seconds.values()) <= total


def test_time_in_the_agent_is_inference(sampler, monkeypatch):
    step = sampler.handler.step

    def slow_step(t, columns):
        time.sleep(0.01)
        step(t, columns)

    monkeypatch.setattr(sampler.handler, "step", slow_step)
    _, _, seconds = sampler.collect_timed_batch(0)
    assert seconds["inference"] >= 0.05  # five rows


def test_an_error_leaves_no_timer_in_the_sampler(sampler, monkeypatch):
    def fail(t, columns):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(sampler.handler, "step", fail)
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        sampler.collect_timed_batch(0)
    assert sampler._timer is None
