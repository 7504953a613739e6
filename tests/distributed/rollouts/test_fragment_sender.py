"""A sender waits for the storage, judges staleness, and loses nothing without a count."""

from __future__ import annotations

import threading

import pytest
from fragments import make_fragment

from parllel.distributed.rollouts import FragmentSender, ReplayBuffer
from parllel.errors import ClosedError, WorkerTimeoutError


class SlowStorage(ReplayBuffer):
    """Takes fragments only while `door` is open; raises `error` if there is one. `asked`: it was called."""

    def __init__(self, capacity=100):
        super().__init__(capacity)
        self.door = threading.Event()
        self.error = None
        self.asked = threading.Event()

    def add(self, fragments, timeout_s):
        self.asked.set()
        if self.error is not None:
            raise self.error
        if not self.door.wait(timeout_s):
            return 0
        return super().add(fragments, timeout_s)


def counts(sender):
    sender.ledger.check()
    return {name: number for name, number in sender.ledger.counts().items() if number}


def test_fragments_arrive_in_order():
    with ReplayBuffer(10) as buffer, FragmentSender(buffer) as sender:
        for sequence in range(5):
            sender.put(make_fragment(sequence))
        assert sender.flush(30)
        assert [f.sequence for f in buffer.fetch(5, 1)] == list(range(5))
        assert counts(sender) == {"produced": 5, "accepted": 5}


def test_a_full_queue_is_waited_for():
    storage = SlowStorage()
    with storage, FragmentSender(storage, capacity=2) as sender:
        assert sender.await_room(0)
        for sequence in range(3):
            sender.put(make_fragment(sequence))
        assert not sender.await_room(0.05)
        assert not sender.flush(0.05)
        assert counts(sender) == {"produced": 3, "queued": 3}
        threading.Timer(0.1, storage.door.set).start()
        assert sender.await_room(10)
        assert sender.flush(30)


def test_staleness_is_judged_when_a_fragment_is_sent():
    storage = SlowStorage()
    with storage, FragmentSender(storage, max_staleness=1) as sender:
        for sequence in range(4):
            sender.put(make_fragment(sequence, version=sequence))
            # All of them would be on their way where the thread is slower than this.
            assert storage.asked.wait(30)
        sender.new_version(3)
        sender.new_version(1)  # versions never go back
        assert sender.version == 3
        storage.door.set()
        assert sender.flush(30)
        found = counts(sender)
        # The first was on its way already.
        assert found["produced"] == 4
        assert found["stale"] in (1, 2)
        assert {f.sequence for f in storage.fetch(found["accepted"], 1)} >= {2, 3}
        sender.count_stale()
        assert counts(sender)["produced"] == 5
        assert sender.is_stale(1)
        assert not sender.is_stale(2)


def test_what_waits_is_added_in_one_call_and_again_unless_it_is_acknowledged():
    asked, let_go = [], threading.Event()

    class SomeAtATime(ReplayBuffer):
        def add(self, fragments, timeout_s):
            let_go.wait(30)
            asked.append([fragment.sequence for fragment in fragments])
            return super().add(fragments[:2], timeout_s)

    with SomeAtATime(9) as storage, FragmentSender(storage) as sender:
        for sequence in range(6):
            sender.put(make_fragment(sequence))
        let_go.set()
        assert sender.flush(30)
        # How many were there when the thread first looked is left to chance.
        assert len(asked[0]) in range(1, 7)
        assert asked[-1] == [5] or asked[-1] == [4, 5]
        assert [f.sequence for f in storage.fetch(6, 1)] == [*range(6)]
        assert storage.duplicates == 0
    assert counts(sender) == {"produced": 6, "accepted": 6}


@pytest.mark.parametrize("done", [-1, 2])
def test_a_storage_that_acknowledges_what_it_was_not_given_is_named(done):
    storage = SlowStorage()
    storage.add = lambda fragments, timeout_s: done
    sender = FragmentSender(storage)
    sender.put(make_fragment(0))
    with (
        storage,
        pytest.raises(ValueError, match=f"SlowStorage.add: expected a result from 0 to 1.*{done}"),
    ):
        sender.flush(30)
    assert counts(sender) == {"produced": 1, "rejected": 1}
    sender.close()


def test_what_the_storage_raises_comes_out_of_the_next_call():
    storage = SlowStorage()
    storage.error = KeyError("the storage of the test")
    sender = FragmentSender(storage)
    sender.put(make_fragment(0))
    with storage, pytest.raises(KeyError, match="the storage of the test") as caught:
        sender.flush(30)
    with pytest.raises(KeyError, match="the storage of the test"):
        sender.put(make_fragment(1))
    assert "add" in [entry.name for entry in caught.traceback]
    assert counts(sender) == {"produced": 1, "rejected": 1}
    sender.close()


def test_an_error_that_no_call_has_raised_comes_out_of_close():
    storage = SlowStorage()
    sender = FragmentSender(storage)
    storage.error = KeyError("the storage of the test")
    sender.put(make_fragment(0))
    with storage, pytest.raises(KeyError, match="the storage of the test"):
        sender.close()
    sender.close()


def test_closing_sends_what_it_can_and_counts_the_rest():
    storage = SlowStorage()
    with storage:
        sender = FragmentSender(storage)
        sender.put(make_fragment(0))
        sender.put(make_fragment(1))
        sender.close(timeout_s=0.2)
        assert counts(sender) == {"produced": 2, "lost": 2}
        for call in (lambda: sender.put(make_fragment(2)), lambda: sender.await_room(0)):
            with pytest.raises(ClosedError, match="FragmentSender: used after close"):
                call()
        sender.close()
        storage.door.set()
        with FragmentSender(storage) as another:
            another.put(make_fragment(0))
        assert counts(another) == {"produced": 1, "accepted": 1}


def test_a_storage_that_does_not_return_is_named(monkeypatch):
    monkeypatch.setattr("parllel.distributed.rollouts.fragments.fragment_sender._LATE_S", 0.2)
    storage, let_go = ReplayBuffer(2), threading.Event()
    storage.add = lambda fragments, timeout_s: let_go.wait(30) and 1
    sender = FragmentSender(storage)
    sender.put(make_fragment(0))
    with pytest.raises(WorkerTimeoutError, match=r"ReplayBuffer.add did not return within 0.2 s"):
        sender.close(timeout_s=0.1)
    let_go.set()
    sender.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": 0}, "capacity: expected at least 1, got 0"),
        ({"max_staleness": -1}, "max_staleness: expected 0 or more, or None for no limit, got -1"),
    ],
)
def test_arguments_that_are_refused(arguments, message):
    with ReplayBuffer(1) as buffer, pytest.raises(ValueError, match=message):
        FragmentSender(buffer, **arguments)
