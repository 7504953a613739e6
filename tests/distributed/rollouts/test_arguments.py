"""Arguments that nothing could come of are refused at once, by name."""

from __future__ import annotations

import math
import threading

import gymnasium as gym
import pytest
from fragments import make_fragment
from producers import make_fragment_sampler
from worker_setup import blocked_worker, make_cages, make_handler, ready, rows

from parllel import BatchSpec
from parllel.agents import NumpyHandler, RandomAgent
from parllel.distributed.rollouts import (
    AsynchronousSchedule,
    EpisodeStatistics,
    FragmentCutter,
    FragmentSender,
    ReplayBuffer,
    RolloutWorker,
)
from parllel.distributed.rollouts.on_this_machine.worker_thread import WorkerThread
from parllel.errors import ClosedError, WorkerTimeoutError, WrongStateError
from parllel_patterns import allocate_samples


@pytest.mark.parametrize("value", [2.5, math.nan, "4", math.inf])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("ReplayBuffer: capacity", lambda value: ReplayBuffer(value)),
        ("ReplayBuffer: max_reuse", lambda value: ReplayBuffer(4, max_reuse=value)),
        ("ReplayBuffer: max_staleness", lambda value: ReplayBuffer(4, max_staleness=value)),
        ("ReplayBuffer: fetch: n", lambda value: ReplayBuffer(4).fetch(value, 0)),
        ("ReplayBuffer: version", lambda value: ReplayBuffer(4).new_version(value)),
        (
            "FragmentSender: capacity",
            lambda value: FragmentSender(ReplayBuffer(1), capacity=value),
        ),
        (
            "FragmentSender: max_staleness",
            lambda value: FragmentSender(ReplayBuffer(1), max_staleness=value),
        ),
        ("fragment_length", FragmentCutter),
        ("version", lambda value: FragmentCutter(2).add_batch(None, value)),
        ("EpisodeStatistics: capacity", EpisodeStatistics),
    ],
)
def test_numbers_that_are_not_whole(name, make, value):
    with pytest.raises(TypeError, match=f"^{name}: expected a whole number.*, got {value!r}"):
        make(value)


def test_a_wait_until_nan_would_never_end():
    calls = [
        lambda buffer, sender: buffer.fetch(1, math.nan),
        lambda buffer, sender: buffer.add([make_fragment(1)], math.nan),
        lambda buffer, sender: sender.flush(math.nan),
        lambda buffer, sender: sender.await_room(math.nan),
        lambda buffer, sender: sender.close(math.nan),
    ]
    with ReplayBuffer(1) as buffer, FragmentSender(buffer) as sender:
        buffer.add([make_fragment(0)], 0)
        for call in calls:
            with pytest.raises(ValueError, match="expected a number of seconds, got nan"):
                call(buffer, sender)
        assert buffer.fetch(1, -1.0)  # no wait at all
    with pytest.raises(ValueError, match="timeout_s: expected a number of seconds, got nan"):
        make_fragment_sampler(ReplayBuffer(8), timeout_s=math.nan)


def test_what_is_no_fragment_is_not_stored():
    with ReplayBuffer(4) as buffer, FragmentSender(buffer) as sender:
        with pytest.raises(TypeError, match="add: expected a SampleFragment, got 3"):
            buffer.add([make_fragment(0), 3], 0)
        with pytest.raises(TypeError, match="put: expected a SampleFragment, got None"):
            sender.put(None)
        assert buffer.prepared() == sender.queued == 0


def test_parts_of_another_kind():
    with pytest.raises(TypeError, match="ReplayBufferInterface, got the class ReplayBuffer; call"):
        FragmentSender(ReplayBuffer)
    schedule = rows()
    with pytest.raises(TypeError, match="source: expected a ReplayBufferInterface, got None"):
        make_fragment_sampler(None)
    with pytest.raises(TypeError, match="workers: expected a Rollouts or None, got <built-in"):
        make_fragment_sampler(ReplayBuffer(8), workers=print)
    with pytest.raises(TypeError, match="samples: expected a Samples, got None"):
        AsynchronousSchedule([], schedule.handler, None, batch_size=1, max_wait_s=0)
    samples = schedule.sampler.samples
    with pytest.raises(
        TypeError, match=r"environments\[0\]: expected an EnvWorker or a cage, got <"
    ):
        AsynchronousSchedule([object()], schedule.handler, samples, batch_size=1, max_wait_s=0)
    with pytest.raises(TypeError, match="producer: expected a str, got 3"):
        FragmentCutter(2, producer=3)
    with pytest.raises(
        TypeError, match=r"^sender: expected a FragmentSender or None, got the class"
    ):
        RolloutWorker(schedule, fragment_length=4, seed=0, sender=ReplayBuffer)
    with pytest.raises(TypeError, match=r"^seed: expected a whole number, got None"):
        RolloutWorker(schedule, fragment_length=4, seed=None)
    with pytest.raises(TypeError, match=r"^schedule: expected a Schedule, got"):
        RolloutWorker(schedule.sampler, fragment_length=4, seed=0)
    schedule.close()


def test_agents_of_other_environments_are_refused():
    cages = make_cages("single")
    samples = allocate_samples(cages, BatchSpec(2, len(cages)), make_handler())
    agent = RandomAgent(gym.spaces.Discrete(9), seed=0)
    with pytest.raises(ValueError, match=r"Discrete\(9\)"):
        AsynchronousSchedule(cages, NumpyHandler(agent), samples, batch_size=1, max_wait_s=0)
    for cage in cages:
        cage.close()


def test_two_workers_with_one_name_are_refused():
    # The second one's fragments have the numbers of the first one's, and would be dropped as repetitions.
    with ReplayBuffer(64) as buffer, FragmentSender(buffer) as first:
        with RolloutWorker(rows(), fragment_length=3, seed=0, sender=first) as worker:
            worker.run(24)
            assert first.flush(30)
        stored = buffer.prepared()
        assert stored == first.ledger.counts()["accepted"] > 0
        second = FragmentSender(buffer)
        with (
            pytest.raises(
                ValueError, match="one producer named 'local', got fragments of another one"
            ),
            RolloutWorker(rows(), fragment_length=3, seed=0, sender=second) as worker,
        ):
            worker.run()
        second.close()
        assert buffer.prepared() == stored
        assert buffer.duplicates == second.ledger.counts()["accepted"] == 0


# ---------------------------------------------------------------------- one worker, two threads


def test_one_thread_at_a_time_runs_a_worker():
    worker, waits, goes_on = blocked_worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert waits.wait(30)
    with pytest.raises(WrongStateError, match="run: this thread or another one is already running"):
        worker.run(1)
    with pytest.raises(
        WorkerTimeoutError, match=r"run\(\) in another thread did not end within 0.1"
    ):
        worker.close(timeout_s=0.1)
    goes_on.set()
    worker.close()
    thread.join(30)
    assert not thread.is_alive()


def test_a_run_is_not_closed_from_within():
    worker = None

    def close(step):
        worker.close()

    worker = RolloutWorker(
        ready(make_cages("single")), fragment_length=4, seed=0, progress_handler=close
    )
    with pytest.raises(WrongStateError, match=r"close: called within run\(\); call stop\(\) there"):
        worker.run(8)
    worker.close()
    with pytest.raises(ClosedError, match="load_weights: the worker is closed"):
        worker.load_weights({}, 1)


def test_a_worker_thread_wants_a_worker():
    with pytest.raises(TypeError, match="worker: expected a RolloutWorker, got None"):
        WorkerThread(None)
