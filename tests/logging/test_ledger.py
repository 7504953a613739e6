from __future__ import annotations

import json
import re
import sys
import threading

import numpy as np
import pytest

from parllel.logging import Ledger, LedgerError

FRAGMENTS = "produced = accepted + stale + lost + queued"


def test_a_ledger_balances_when_everything_has_gone_somewhere():
    ledger = Ledger(FRAGMENTS)
    assert ledger.balanced()
    ledger.add("produced", "queued")
    ledger.add("produced", queued=1)
    ledger.add(queued=-2, accepted=1, stale=np.int64(1))
    ledger.check()
    assert ledger.counts() == {"produced": 2, "accepted": 1, "stale": 1, "lost": 0, "queued": 0}
    ledger.add("lost")
    assert not ledger.balanced()
    ledger.add(produced=1)
    assert ledger.balanced()


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        (
            {"produced": 5, "accepted": 2, "queued": 1},
            "got 5 = 2 + 0 + 0 + 1: 2 missing on the right",
        ),
        ({"produced": 1, "stale": 4}, "got 1 = 0 + 4 + 0 + 0: 3 missing on the left"),
    ],
)
def test_a_check_says_what_is_missing(amounts, message):
    ledger = Ledger(f"  {FRAGMENTS.replace(' ', '')} ")
    ledger.add(**amounts)
    assert not ledger.balanced()
    with pytest.raises(LedgerError, match=re.escape(f"expected {FRAGMENTS}, {message}")):
        ledger.check()


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ("", "expected two sums of names"),
        ("produced", "expected two sums of names"),
        ("a = b = c", "expected two sums of names"),
        ("a = b +", "expected two sums of names"),
        ("= b", "expected two sums of names"),
        ("a = b - c", "expected two sums of names"),
        ("a == b", "expected two sums of names"),
        ("a = 2", "expected two sums of names"),
        ("a = b + c + a + c", r"expected each counter once, got \['a', 'c'\]"),
    ],
)
def test_other_identities_are_refused(identity, message):
    with pytest.raises(
        ValueError, match=f"^Ledger: identity: {message}.*{re.escape(repr(identity))}$"
    ):
        Ledger(identity)


def test_a_misspelt_counter_is_refused_and_nothing_is_counted():
    ledger = Ledger("a = b + self")
    for add in (lambda: ledger.add("a", "c"), lambda: ledger.add("a", c=1, b=1)):
        with pytest.raises(ValueError, match=r"one of the counters of 'a = b \+ self', got 'c'"):
            add()
    with pytest.raises(TypeError, match="float"):
        ledger.add("a", b=1.0)
    assert ledger.counts() == {"a": 0, "b": 0, "self": 0}
    ledger.add("a", self=1)
    assert ledger.balanced()


def test_ledgers_of_several_workers_are_added_up():
    maker, taker = Ledger("made = taken + queued"), Ledger("made=taken+queued")
    maker.add(made=5, queued=5)
    taker.add(taken=3, queued=-3)
    total = Ledger("made = taken + queued")
    total.merge(maker)
    total.merge(json.loads(json.dumps(taker.state())))  # as it comes from another process
    total.check()
    assert total.counts() == {"made": 5, "taken": 3, "queued": 2}
    with pytest.raises(
        ValueError, match=r"expected .* with 'made = taken \+ queued', got .* 'a = b'"
    ):
        total.merge(Ledger("a = b"))


def test_a_state_is_taken_back():
    ledger, other = Ledger("a = b"), Ledger("a = b")
    ledger.add(a=3, b=2)
    other.add("a", "b")
    other.load_state(ledger.state())
    assert other.counts() == {"a": 3, "b": 2}
    with pytest.raises(
        ValueError, match=r"expected the state of a ledger with 'a = b', got .* 'b = a'"
    ):
        other.load_state(Ledger("b = a").state())
    for counts, error in (
        ({"a": 1}, r"expected counts of \['a', 'b'\], got \['a'\]"),
        ({"a": 1, "b": 1, "c": 1}, r"expected counts of .*, got \['a', 'b', 'c'\]"),
        ({"a": 1, "b": "2"}, "'str' object cannot be interpreted as an integer"),
    ):
        with pytest.raises((ValueError, TypeError), match=error):
            other.load_state({"identity": "a = b", "counts": counts})
    assert other.counts() == {"a": 3, "b": 2}


def test_threads_share_a_ledger_and_never_see_half_a_step():
    ledger = Ledger("made = taken + queued")

    def move():
        for _ in range(2000):
            ledger.add("made", "queued")
            ledger.add("taken", queued=-1)

    threads = [threading.Thread(target=move) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        ledger.check()
    sys.setswitchinterval(interval)
    for thread in threads:
        thread.join()
    assert ledger.counts() == {"made": 8000, "taken": 8000, "queued": 0}
