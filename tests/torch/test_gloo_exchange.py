"""Sums over learners that meet over TCP, here in threads of one process."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from parllel.algos.learner_exchange import LearnerLostError
from parllel.errors import ClosedError
from parllel.torch import gloo_exchange
from parllel.torch.gloo_exchange import GlooExchange

HOST = "127.0.0.1"


@pytest.fixture(autouse=True, scope="module")
def opened():
    """A pipe that PyTorch opens once, and keeps."""
    GlooExchange(1, HOST).close()


def never():
    """Nobody dies."""


def in_threads(n, work, timeout_s=60.0, look=never):
    """Return what `work(rank, exchange)` returns or raises in each of n threads."""
    first = GlooExchange(n, HOST)
    found = [None] * n

    def one(rank):
        exchange = GlooExchange(n, HOST, first.address) if rank else first
        try:
            exchange.open(rank, timeout_s, look)
            found[rank] = work(rank, exchange)
        except Exception as error:
            found[rank] = error
        finally:
            exchange.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def arrays_of(rank):
    rng = np.random.default_rng(rank)
    shapes = [(), (1,), (3, 5), (100_003,), (0,)]
    arrays = [np.asarray(rng.standard_normal(shape)).astype(np.float32) for shape in shapes]
    return [*arrays, rng.integers(0, 9, 11), rng.standard_normal(4)]


@pytest.mark.parametrize("n", [2, 3])
def test_sums_and_arrays_are_those_of_numpy_and_alike_in_all(n):
    def work(rank, exchange):
        gathered = [exchange.gather(array) for array in arrays_of(rank)]
        sums = arrays_of(rank)
        for array in sums:
            exchange.add(array)
        with pytest.raises(ValueError, match="expected a contiguous array, got strides"):
            exchange.add(np.zeros((4, 4))[:, ::2])
        return sums, gathered

    found = in_threads(n, work)
    expected = list(zip(*map(arrays_of, range(n)), strict=True))
    for sums, gathered in found:
        for one, first, all_ in zip(sums, found[0][0], expected, strict=True):
            np.testing.assert_array_equal(one, first)
            np.testing.assert_allclose(one, np.sum(all_, axis=0), rtol=1e-5, atol=1e-6)
        for one, all_ in zip(gathered, expected, strict=True):
            assert [array.dtype for array in one] == [array.dtype for array in all_]
            for array, own in zip(one, all_, strict=True):
                np.testing.assert_array_equal(array, own)


def test_one_that_leaves_ends_the_waits_of_the_others_at_once():
    def work(rank, exchange):
        if rank == 1:
            time.sleep(0.3)
            return
        exchange.add(np.zeros(8))

    begin = time.monotonic()
    first, _, last = in_threads(3, work)
    for error in (first, last):
        assert isinstance(error, LearnerLostError)
        assert "lost another learner" in str(error)
    assert time.monotonic() - begin < 10


def test_one_that_hangs_is_found_by_the_time_limit():
    def work(rank, exchange):
        if rank:
            over.wait(60)
            return
        begin = time.monotonic()
        try:
            exchange.add(np.zeros(8))
        finally:
            over.set()
            assert 1 < time.monotonic() - begin < 20

    over = threading.Event()
    first, _ = in_threads(2, work, timeout_s=2.0)
    assert isinstance(first, LearnerLostError)


def test_looks_end_a_wait():
    def look():
        if waiting.is_set():
            raise LearnerLostError("it was seen")

    def work(rank, exchange):
        if rank:
            over.wait(60)
            return
        waiting.set()
        try:
            exchange.add(np.zeros(8))
        finally:
            # Before the other one leaves.
            begin = time.monotonic()
            exchange.close()
            assert time.monotonic() - begin < 5
            over.set()

    over, waiting = threading.Event(), threading.Event()
    first, _ = in_threads(2, work, look=look)
    assert str(first) == "it was seen"


def test_they_wait_for_all_to_open_within_the_time_limit():
    exchange = GlooExchange(2, HOST)
    with pytest.raises(LearnerLostError, match=r"another learner was not ready within 0\.2 s"):
        exchange.open(0, 0.2, never)
    exchange.close()
    exchange.close()
    with pytest.raises(ClosedError, match="before the run has started"):
        exchange.add(np.zeros(1))


def test_the_interface_is_that_of_the_address(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    with gloo_exchange._interface(HOST):
        assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    assert "GLOO_SOCKET_IFNAME" not in os.environ
    # Of no interface, or chosen by the user.
    with gloo_exchange._interface("203.0.113.1"):
        assert "GLOO_SOCKET_IFNAME" not in os.environ
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    with gloo_exchange._interface(HOST):
        assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7"
