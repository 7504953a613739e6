"""Ctrl-C while something is closed: the next call closes it all the same."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from fragments import make_fragment
from worker_setup import blocked_worker

from parllel.distributed.rollouts import FragmentSender, ReplayBuffer
from parllel.distributed.rollouts.on_this_machine.worker_thread import WorkerThread
from parllel.errors import ClosedError, WorkerTimeoutError


def interrupt_when(closing):
    """Interrupt this thread soon after `closing()` has become true."""
    main = threading.get_ident()

    def interrupt():
        while not closing():
            time.sleep(0.01)
        time.sleep(0.2)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


@pytest.fixture(autouse=True)
def keyboard_interrupt():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_sender():
    with ReplayBuffer(1) as buffer:
        sender = FragmentSender(buffer)
        for sequence in range(3):
            sender.put(make_fragment(sequence))
        thread = interrupt_when(lambda: sender._close_by is not None)
        with pytest.raises(KeyboardInterrupt):
            sender.close(timeout_s=30)
        thread.join()
        assert not sender.ledger.counts()["lost"]
        buffer.close()
        with pytest.raises(ClosedError, match="the buffer is closed"):
            sender.close()
        counts = sender.ledger.counts()
        assert counts["accepted"] == 1
        assert counts["queued"] == 0


def test_a_worker_thread():
    worker, waits, goes_on = blocked_worker()
    with WorkerThread(worker) as running:
        running.load_weights({}, 1)
        assert waits.wait(30)
        thread = interrupt_when(lambda: running._closed)
        with pytest.raises(KeyboardInterrupt):
            running.close()
        thread.join()
        with pytest.raises(WorkerTimeoutError, match=r"its turn did not end within 0.1 s"):
            running.close(timeout_s=0.1)
        goes_on.set()
