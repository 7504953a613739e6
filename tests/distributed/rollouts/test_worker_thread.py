"""Workers in threads feed a trainer."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import numpy as np
import pytest
from producers import MAKE_ENV, SPEC, make_agent, make_fragment_sampler

from parllel import BatchSpec, Seeds
from parllel.agents import weights_of
from parllel.distributed.rollouts import (
    AsynchronousSchedule,
    EpisodeStatistics,
    FragmentSender,
    ReplayBuffer,
    RolloutWorker,
    SynchronousSchedule,
    Trainer,
)
from parllel.distributed.rollouts.on_this_machine.worker_thread import WorkerThread
from parllel.errors import ClosedError
from parllel.logging import Logger
from parllel.samplers import BasicSampler
from parllel.torch import PPO, TorchHandler
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import PPO_DEFAULTS, allocate_samples, build_cages

T, B = SPEC.shape


def make_schedule(kind, seed):
    cages = build_cages(MAKE_ENV, 4, seeds=Seeds(seed))
    handler = TorchHandler(make_agent())
    spec = BatchSpec(T, 4)
    samples = allocate_samples(cages, spec, handler, next_observation=kind == "rows")
    if kind == "rows":
        return SynchronousSchedule(BasicSampler(spec, cages, handler, samples))
    return AsynchronousSchedule(cages, handler, samples, batch_size=4, max_wait_s=0.01)


def make_thread(stack, buffer, statistics=None, *, kind="rows", number=0):
    sender = FragmentSender(buffer, capacity=1)
    stack.callback(sender.close, 0.0)
    worker = RolloutWorker(
        make_schedule(kind, number),
        fragment_length=T,
        seed=number,
        producer=f"worker {number}",
        sender=sender,
        statistics=statistics,
    )
    return stack.enter_context(WorkerThread(worker, name=f"worker {number}")), sender


@pytest.mark.parametrize("kind", ["rows", "ready"])
def test_a_trainer_learns_from_workers_in_threads(kind):
    transforms = [EstimateAdvantage(0.98, 0.9), NormalizeAdvantage()]
    statistics = EpisodeStatistics()
    with ExitStack() as stack:
        buffer = stack.enter_context(ReplayBuffer(2 * B, max_staleness=8))
        made = [make_thread(stack, buffer, statistics, kind=kind, number=n) for n in range(2)]
        threads, senders = zip(*made, strict=True)
        sampler = stack.enter_context(
            make_fragment_sampler(
                buffer,
                batch=transforms,
                publish_to=[thread.load_weights for thread in threads],
                check_workers=[thread.check for thread in threads],
                statistics=statistics,
            )
        )
        trainer = Trainer(
            SPEC,
            sampler,
            PPO(sampler.agent, **PPO_DEFAULTS, seed=3),
            n_steps=6 * SPEC.size,
            log_interval_steps=SPEC.size,
            logger=Logger([]),
        )
        result = trainer.run()
        assert np.asarray(sampler.samples.env.version).min() >= 1
    assert result.elapsed_steps == 6 * SPEC.size
    assert statistics.episodes[""] > 0
    assert buffer.counts()["accepted"] == 6 * B
    assert sum(sender.ledger.counts()["accepted"] for sender in senders) == buffer.counts()["added"]
    assert all(one.ledger.balanced() for one in (buffer, *senders))
    assert not [one for one in threading.enumerate() if one.name.startswith("worker ")]


def test_a_worker_begins_with_its_first_weights():
    with ExitStack() as stack:
        buffer = stack.enter_context(ReplayBuffer(64))
        thread, _ = make_thread(stack, buffer)
        assert not buffer.fetch(1, 0.2)
        assert thread.load_weights(weights_of(make_agent(seed=4)), 3)
        fragments = buffer.fetch(8, 20.0)
        assert {fragment.oldest_version for fragment in fragments} == {3}
        assert not thread.load_weights(weights_of(make_agent()), 3)
    with pytest.raises(ClosedError, match="worker 0: load_weights: the worker is closed"):
        thread.load_weights(weights_of(make_agent()), 4)


def test_what_ends_a_worker_reaches_the_trainer():
    def fail(step):
        raise ArithmeticError("no progress")

    with ExitStack() as stack:
        buffer = stack.enter_context(ReplayBuffer(64))
        worker = RolloutWorker(
            make_schedule("rows", 0), fragment_length=T, seed=0, progress_handler=fail
        )
        thread = stack.enter_context(WorkerThread(worker))
        sampler = stack.enter_context(
            make_fragment_sampler(
                buffer, publish_to=[thread.load_weights], check_workers=[thread.check]
            )
        )
        sampler.publish()
        with pytest.raises(ArithmeticError, match="no progress"):
            sampler.collect_batch(0)
        with pytest.raises(ArithmeticError, match="no progress"):
            sampler.publish()


def test_weights_for_a_worker_that_is_ending_raise_what_ends_it():
    closing, closed = threading.Event(), threading.Event()

    def fail(step):
        raise ArithmeticError("no progress")

    schedule = make_schedule("rows", 0)
    close = schedule.close

    def close_slowly():
        # As environments in processes may.
        closing.set()
        closed.wait(20)
        close()

    schedule.close = close_slowly
    worker = RolloutWorker(schedule, fragment_length=T, seed=0, progress_handler=fail)
    with WorkerThread(worker) as thread:
        thread.load_weights(weights_of(make_agent()), 1)
        assert closing.wait(20)
        timer = threading.Timer(0.1, closed.set)
        timer.start()
        # The worker is closed by now, which is no reason.
        with pytest.raises(ArithmeticError, match="no progress"):
            thread.load_weights(weights_of(make_agent()), 2)
        timer.join()


def test_a_worker_whose_thread_cannot_start_is_closed(monkeypatch):
    def refuse():
        raise RuntimeError("can't start new thread")

    worker = RolloutWorker(make_schedule("rows", 0), fragment_length=T, seed=0)
    with WorkerThread(worker) as thread:
        monkeypatch.setattr(thread._thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            thread.load_weights(weights_of(make_agent()), 1)
        thread.close(0.1)
        assert worker.status().phase == "ended"
