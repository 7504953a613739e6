"""The threads of a worker's actor, with the manager's part played here: nothing here starts Ray."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace

import cloudpickle
import pytest
from worker_setup import make_cages, ready

from parllel.distributed.rollouts import RolloutWorker
from parllel.distributed.rollouts.on_ray import ray_episode_statistics, rollout_worker_wrapper
from parllel.errors import RestartsUsedUpError
from parllel.testing.dummy_envs import CountingEnv

LONG_S = 20.0


class Actor:
    """Stands for an actor: its methods are called at once, and return what Ray would."""

    def __init__(self, **methods):
        for name, method in methods.items():
            setattr(self, name, SimpleNamespace(remote=method))


class Buffer:
    """Stands for the buffer, to which nothing is added."""

    def offer_from_here(self):
        pass


def publication(version):
    return SimpleNamespace(version=version, fetch=dict)


@pytest.fixture
def make_wrapper(monkeypatch):
    """Return what makes a wrapper of a worker, from functions of the manager and of the statistics."""

    def make(build, report, add_episodes=lambda packed, n: None):
        return rollout_worker_wrapper.RolloutWorkerWrapper(
            build, "worker 0", Buffer(), Actor(report=add_episodes), Actor(report=report)
        )

    here = SimpleNamespace(get_node_id=lambda: "here")
    monkeypatch.setattr(rollout_worker_wrapper.ray, "get_runtime_context", lambda: here)
    monkeypatch.setattr(rollout_worker_wrapper, "end_with_raylet", lambda: None)
    monkeypatch.setattr(rollout_worker_wrapper, "unpack_build", lambda build: build)
    for module in (rollout_worker_wrapper, ray_episode_statistics):
        monkeypatch.setattr(module, "answer", lambda reference, *arguments: reference)
    return make


def build_worker(context, progress_handler):
    """Put a worker together whose episodes have one step."""
    schedule = ready(make_cages("single", makes=[partial(CountingEnv, 1)] * 2))
    return RolloutWorker(
        schedule,
        fragment_length=4,
        seed=0,
        producer=context.name,
        statistics=context.statistics,
        progress_handler=progress_handler,
    )


def test_weights_for_a_worker_that_is_ending_do_not_hide_what_ends_it(make_wrapper):
    closing, refused = threading.Event(), threading.Event()

    def fail(step):
        raise RestartsUsedUpError("all environments are parked")

    def build(context):
        worker = build_worker(context, fail)
        load, close = worker.load_weights, worker.schedule.close

        def load_weights(weights, version):
            try:
                return load(weights, version)
            finally:
                if version == 2:
                    refused.set()

        def close_slowly():
            # As environments in processes may.
            closing.set()
            assert refused.wait(LONG_S)
            close()

        worker.load_weights, worker.schedule.close = load_weights, close_slowly
        return worker

    def report(status, layout, known, wait_s):
        if known == 1:
            assert closing.wait(LONG_S)
        return publication(known + 1) if known < 2 else wrapper._stopping.wait(wait_s) and None

    wrapper = make_wrapper(build, report)
    end = wrapper.run()
    assert refused.is_set()
    assert (end.kind, end.text) == ("parked", "all environments are parked")


def test_episodes_of_the_last_turn_are_sent(make_wrapper):
    sent, workers, passed = [], [], threading.Event()

    def stop_within_a_turn(step):
        wrapper.stop()
        # The follower sends what there is at `stop`, before this turn has ended.
        assert passed.wait(LONG_S)

    def build(context):
        workers.append(build_worker(context, stop_within_a_turn))
        return workers[0]

    def report(status, layout, known, wait_s):
        return wrapper._stopping.wait(wait_s) and None if known else publication(1)

    def add_episodes(packed, n):
        sent.extend(cloudpickle.loads(packed)[""])

    wrapper = make_wrapper(build, report, add_episodes)
    send = wrapper._reporter.send

    def send_and_tell():
        stopping = wrapper._stopping.is_set()
        send()
        if stopping:
            passed.set()

    wrapper._reporter.send = send_and_tell
    assert wrapper.run() is None
    assert len(sent) == workers[0].n_steps > 0
