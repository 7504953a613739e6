"""Workers, publishers and a trainer in threads of their own: every order that comes up must be right."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import psutil
import pytest
from rollout_model import Law, Reader, Stream, oldest_of, weight_of
from scripted_cages import Script
from watched_parts import WatchedBuffer
from weighted_agent import WeightedAgent
from worker_plan import Plan

from parllel.distributed.rollouts import FragmentSender, RolloutWorker
from parllel.distributed.rollouts.on_this_machine.worker_thread import WorkerThread

LENGTHS = ((3, 2), (4,), (1, 5))
N_WORKERS, N_FRAGMENTS, STALENESS = 2, 150, 3
PATIENCE_S = 60.0


class KeepingSender(FragmentSender):
    """Keeps what is put."""

    def __init__(self, *args, **options):
        self.put_so_far = []
        super().__init__(*args, **options)

    def put(self, *fragments):
        self.put_so_far += fragments
        super().put(*fragments)


class Publisher(threading.Thread):
    """Gives workers and buffer every other version, as another one does, so they come out of order.

    turn: released for each; versions that grew by the clock would let a slow machine fetch nothing.
    """

    def __init__(self, threads, buffer, first):
        super().__init__()
        self.threads, self.buffer, self.version = threads, buffer, first
        self.turn, self.ended, self.error = threading.Semaphore(0), False, None

    def end(self):
        self.ended = True
        self.join(PATIENCE_S)

    def run(self):
        try:
            while not self.ended:
                if not self.turn.acquire(timeout=0.2):
                    continue
                for thread in self.threads:
                    give(thread.worker, self.version)
                self.buffer.new_version(self.version)
                self.version += 2
        except BaseException as error:
            self.error = error


def give(worker, version):
    worker.load_weights(WeightedAgent.weights(weight_of(version)), version)


def make_worker(stack, plan, number, buffer):
    laws = [Law(lengths, plan.recurrent) for lengths in plan.lengths]
    model = SimpleNamespace(streams=[Stream(law, plan.length) for law in laws], crashes=0)
    scripts = [Script(plan.waits, i) for i in range(len(laws))]
    schedule, sources = plan.schedule(1000 * number, scripts, model)
    sender = KeepingSender(buffer, capacity=2, max_staleness=STALENESS)
    stack.callback(sender.close, 0.1)
    worker = RolloutWorker(
        schedule,
        fragment_length=plan.fragment_length,
        seed=3,
        producer=str(number),
        sender=sender,
    )
    return stack.enter_context(WorkerThread(worker)), sender, sources, laws


def kill_one(sources, turn):
    pid = sources[turn % len(sources)].cage.pid
    # The number of one that is gone may be that of anything.
    if pid in {child.pid for child in psutil.Process().children()}:
        os.kill(pid, signal.SIGKILL)


def consume(buffer, publishers, sources):
    """Fetch until there are enough; return what came, and check that none of it is too old."""
    fetched, deadline = [], time.monotonic() + PATIENCE_S
    while len(fetched) < N_FRAGMENTS and time.monotonic() < deadline:
        version = buffer.version
        for fragment in buffer.fetch(2, 0.05):
            assert version - oldest_of(fragment) <= STALENESS
            fetched.append(fragment)
            if len(fetched) % 4 == 0:
                publishers[len(fetched) // 4 % 2].turn.release()
        if sources and fetched and len(fetched) % 30 == 0:
            kill_one(sources, len(fetched))
        assert not any(publisher.error for publisher in publishers)
    assert len(fetched) >= N_FRAGMENTS
    return fetched


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize(("kind", "places"), [("rows", "together"), ("ready", "real")])
@pytest.mark.few(2)
def test_everything_at_once(kind, places, recurrent):
    plan = Plan(
        kind,
        places,
        recurrent,
        LENGTHS,
        length=3,
        T=3,
        batch_size=2,
        max_wait_s=0.001,
        waits=(0,),
        restarts=1000,
        capacity=2,
        max_staleness=STALENESS,
        timeout_s=30.0,
    )
    with WatchedBuffer(4, max_staleness=STALENESS) as buffer:
        with ExitStack() as stack:
            made = [make_worker(stack, plan, number, buffer) for number in range(N_WORKERS)]
            threads, senders, sources, laws = zip(*made, strict=True)
            for thread in threads:
                give(thread, 1)
            publishers = [Publisher(threads, buffer, first) for first in (2, 3)]
            for publisher in publishers:
                publisher.start()
                stack.callback(publisher.end)
            victims = [one for some in sources for one in some] if places == "real" else []
            fetched = consume(buffer, publishers, victims)
        # Senders have sent what they could; what is left is in the buffer.
        for sender in senders:
            sender.ledger.check()
        counts = buffer.ledger.counts()
        buffer.ledger.check()
    assert sum(sender.ledger.counts()["accepted"] for sender in senders) == counts["added"]
    assert counts["accepted"] == len(fetched)
    assert not victims or any(one.restarts for one in victims)
    for number, sender in enumerate(senders):
        for environment, law in enumerate(laws[number]):
            key = str(number), environment
            check_joins(sender.put_so_far, key, law, gaps=False)
            check_joins(fetched, key, law, gaps=True)


def check_joins(fragments, key, law, *, gaps):
    reader = Reader(law, 3, gaps=gaps)
    for fragment in fragments:
        if fragment.key[:2] == key:
            reader.read(fragment)
