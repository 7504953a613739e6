"""Sums over processes and threads that meet in shared memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from parllel.algos import learner_exchange
from parllel.algos.learner_exchange import LearnerExchange, LearnerLostError
from parllel.errors import ClosedError

SLOT = learner_exchange.SLOT_BYTES


def never():
    """Nobody dies."""


def in_threads(n, work, timeout_s=60.0):
    """Return what `work(rank, exchange)` returns or raises in each of n threads, which share the memory."""
    shared = LearnerExchange(n)
    found = [None] * n

    def one(rank):
        exchange = LearnerExchange.__new__(LearnerExchange)
        vars(exchange).update(shared.__getstate__())
        exchange.open(rank, timeout_s, never)
        try:
            found[rank] = work(rank, exchange)
        except Exception as error:
            found[rank] = error
        finally:
            exchange.leave()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    return found


def arrays_of(rank):
    rng = np.random.default_rng(rank)
    n = SLOT // 4
    shapes = [(), (1,), (3, 5), (n,), (n + 1,), (2, n + 7), (0,)]
    arrays = [np.asarray(rng.standard_normal(shape)).astype(np.float32) for shape in shapes]
    return [*arrays, rng.integers(0, 9, 11), rng.standard_normal(4)]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_sums_are_those_of_numpy_in_the_order_of_the_ranks(n):
    def work(rank, exchange):
        arrays = arrays_of(rank)
        for array in arrays:
            exchange.add(array)
        return arrays

    found = in_threads(n, work)
    parts = [arrays_of(rank) for rank in range(n)]
    for i, expected in enumerate(parts[0]):
        for other in parts[1:]:
            expected = expected + other[i]
        for rank in range(n):
            np.testing.assert_array_equal(found[rank][i], expected)
            assert found[rank][i].dtype == expected.dtype


def test_gathered_arrays_are_those_of_each_rank():
    found = in_threads(3, lambda rank, exchange: [*map(exchange.gather, arrays_of(rank))])
    for lists in found:
        for i, arrays in enumerate(lists):
            for rank, array in enumerate(arrays):
                np.testing.assert_array_equal(array, arrays_of(rank)[i])


def test_learners_that_are_now_slow_and_now_fast_never_mix_exchanges():
    def work(rank, exchange):
        rng, array = np.random.default_rng(rank), np.empty(50, np.int64)
        for k in range(2000):
            if rng.random() < 0.01:
                time.sleep(0.001)
            array[:] = k + rank
            exchange.add(array)
            assert (array == 3 * k + 3).all(), (k, array)
        return "done"

    assert in_threads(3, work) == ["done"] * 3


def test_the_numbers_of_exchanges_start_again(monkeypatch):
    monkeypatch.setattr(learner_exchange, "_LAST", 4)

    def work(rank, exchange):
        arrays = [np.array([k * (rank + 1)]) for k in range(13)]
        for array in arrays:
            exchange.add(array)
        return [int(array[0]) for array in arrays]

    assert in_threads(2, work) == [[3 * k for k in range(13)]] * 2


def test_one_that_leaves_ends_the_waits_of_the_others_and_takes_part_no_more():
    def work(rank, exchange):
        if rank != 1:
            exchange.add(np.zeros(3))
        time.sleep(0.2)
        exchange.leave()
        exchange.leave()
        with pytest.raises(ClosedError, match="after its end"):
            exchange.add(np.zeros(1))

    begin = time.monotonic()
    first, second, third = in_threads(3, work)
    assert second is None
    assert isinstance(first, LearnerLostError)
    assert isinstance(third, LearnerLostError)
    assert str(first) == "learner 0: learner 1 has left"
    assert time.monotonic() - begin < 30


def test_one_that_does_not_come_is_named_after_the_time_limit():
    def work(rank, exchange):
        if rank == 0:
            exchange.add(np.zeros(3))
        time.sleep(1.5)

    error, _ = in_threads(2, work, timeout_s=0.5)
    assert isinstance(error, LearnerLostError)
    assert str(error) == "learner 0: learner 1 did not answer within 0.5 s"


@pytest.mark.parametrize("other", [np.zeros(4), np.zeros(3, np.float32), np.zeros(SLOT)])
def test_arrays_that_differ_are_refused_by_all(other):
    found = in_threads(2, lambda rank, exchange: exchange.add(other if rank else np.zeros(3)))
    for rank, error in enumerate(found):
        assert isinstance(error, ValueError)
        assert str(error).startswith(
            f"learners {rank} and {1 - rank}: expected arrays of one size and dtype, got "
        )


def test_an_array_that_could_not_be_written_in_place_is_refused():
    exchange = LearnerExchange(1)
    exchange.open(0, 60.0, never)
    with pytest.raises(ValueError, match="expected a contiguous array"):
        exchange.add(np.zeros((3, 4))[:, ::2])
    exchange.close()


@pytest.mark.parametrize("kind", ["compiled", "semaphore"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_meet(kind, method, monkeypatch):
    if kind not in learner_exchange.available_kinds():
        pytest.skip(f"this machine has no {kind} wait")
    monkeypatch.setattr(learner_exchange, "available_kinds", lambda: [kind])
    exchange = LearnerExchange(2)
    other = multiprocessing.get_context(method).Process(target=add_often, args=(exchange, 300))
    other.start()
    try:
        exchange.open(0, 60.0, never)
        for k in range(300):
            array = np.full(10, k, np.float32)
            exchange.add(array)
            assert (array == 3 * k).all()
        exchange.settle()
    finally:
        other.join(30)
        exchange.close()
        exchange.close()
    assert other.exitcode == 0


def add_often(exchange, times):
    exchange.open(1, 60.0, never)
    for k in range(times):
        exchange.add(np.full(10, 2 * k, np.float32))
    exchange.close()


def test_a_killed_process_is_found_by_who_looks():
    exchange = LearnerExchange(2)
    other = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    other.start()

    def look():
        if not other.is_alive():
            raise LearnerLostError("it died")

    exchange.open(0, 60.0, look)
    timer = threading.Timer(0.3, os.kill, (other.pid, signal.SIGKILL))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(LearnerLostError, match="it died"):
        exchange.add(np.zeros(1))
    assert time.monotonic() - begin < 20
    timer.join()
    other.join()
    other.close()
    exchange.close()
