"""Faults at random, one after another, for minutes: each step gets its messages or a typed error in time.

PARLLEL_SOAK_TRIALS (200) is the number of faults for each broker.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter

import pytest

pytest.importorskip("confluent_kafka")

from foreign_records import put_foreign_records, records_of
from traffic import Traffic

from parllel.distributed.messaging import KafkaBroker, MessagingError

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

TRIALS = int(os.environ.get("PARLLEL_SOAK_TRIALS", 200))
TIMEOUT_S = 4.0
PATIENCE_S = (
    20.0  # what a busy machine may add to a time-out, and a broker may take to be well again
)


def restart(disturbed, rng):
    disturbed.kill()
    time.sleep(rng.random() * 2)
    disturbed.start()


def pause(disturbed, rng):
    disturbed.pause()
    time.sleep(rng.random() * 6)
    disturbed.resume()


def stall(disturbed, rng):
    disturbed.proxy.stalled = True
    time.sleep(rng.random() * 6)
    disturbed.proxy.stalled = False


def cut(disturbed, rng):
    disturbed.proxy.cut()


def cut_within_an_answer(disturbed, rng):
    disturbed.proxy.cut_after = rng.randrange(2000)


def refuse(disturbed, rng):
    disturbed.proxy.refuse()
    time.sleep(rng.random() * 3)
    disturbed.proxy.accept()


def slow_down(disturbed, rng):
    disturbed.proxy.delay_s = rng.choice([0.0, 0.01, 0.05])


FAULTS = [restart, pause, stall, cut, cut_within_an_answer, refuse, slow_down]


def test_faults_at_random_never_hang_and_never_mix_steps(disturbed):
    rng = random.Random(0)
    outcomes: Counter[str] = Counter()
    with KafkaBroker("kafka", bootstrap=disturbed.address, timeout_s=TIMEOUT_S) as broker:
        traffic = Traffic(broker)
        for _ in range(TRIALS):
            fault = rng.choice(FAULTS)
            doing = threading.Thread(target=fault, args=(disturbed, rng))
            doing.start()
            while doing.is_alive():
                outcomes[f"{fault.__name__}: {step(traffic)}"] += 1
            doing.join()
            deadline = time.monotonic() + PATIENCE_S
            while (said := step(traffic)) != "fine":
                assert time.monotonic() < deadline, f"after {fault.__name__}: {said}"
            if rng.random() < 0.1:
                disturbed.proxy.delay_s = 0.0
                copied = records_of(disturbed.address, broker.run, 2)
                put_foreign_records(disturbed.address, broker.run, copied)
        broker.ledger.check()
        print(disturbed.kind, dict(outcomes), broker.statistics(), flush=True)


def step(traffic: Traffic) -> str:
    begun = time.monotonic()
    said = "fine"
    try:
        traffic.step()
    except MessagingError as error:
        traffic.reset()
        if error.environment not in traffic.env_ids or error.step is None:
            raise
        said = type(error).__name__
    assert time.monotonic() - begun < TIMEOUT_S + PATIENCE_S
    return said
