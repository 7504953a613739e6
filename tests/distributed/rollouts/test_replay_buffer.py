from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from fragments import make_fragment
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from parllel.distributed.rollouts import ReplayBuffer
from parllel.distributed.rollouts.fragments import replay_buffer
from parllel.errors import ClosedError

PATIENCE_S = 20.0


class BufferModel(RuleBasedStateMachine):
    """Compare a buffer with a plain list of `[fragment, draws]`."""

    @initialize(
        capacity=st.integers(1, 5),
        max_reuse=st.integers(1, 3),
        order=st.sampled_from(["oldest", "newest", "random"]),
        max_staleness=st.sampled_from([None, 0, 1, 3]),
    )
    def begin(self, capacity, max_reuse, order, max_staleness):
        self.buffer = ReplayBuffer(
            capacity, max_reuse=max_reuse, order=order, max_staleness=max_staleness, seed=3
        )
        self.capacity, self.max_reuse, self.max_staleness = capacity, max_reuse, max_staleness
        self.order = order
        self.held, self.next, self.sent = [], {}, []
        self.version = 0
        self.counts = dict.fromkeys(["added", "accepted", "stale", "lost", "queued"], 0)
        self.duplicates = 0
        self.closed = False

    def too_old(self, fragment):
        limit = self.max_staleness
        return limit is not None and self.version - fragment.oldest_version > limit

    def add(self, fragments):
        if self.closed and fragments:
            with pytest.raises(ClosedError, match="add: the buffer is closed"):
                self.buffer.add(fragments, 0)
            return 0
        done = 0
        for fragment in fragments:
            if any(one.key == fragment.key for one in self.sent):
                self.duplicates += 1
            elif self.too_old(fragment):
                self.sent.append(fragment)
                self.counts["added"] += 1
                self.counts["stale"] += 1
            elif len(self.held) < self.capacity:
                self.sent.append(fragment)
                self.held.append([fragment, 0])
                self.counts["added"] += 1
            else:
                break
            done += 1
        assert self.buffer.add(fragments, 0) == done
        return done

    @rule(
        environments=st.lists(st.integers(0, 2), max_size=4),
        age=st.integers(0, 4),
        gap=st.integers(0, 1),
    )
    def add_new(self, environments, age, gap):
        fragments, after = [], dict(self.next)
        for environment in environments:
            after[environment] = after.get(environment, -1) + 1 + gap
            version = max(0, self.version - age)
            fragments.append(
                make_fragment(
                    after[environment], length=1, version=version, environment=environment
                )
            )
        # Sent again until all are acknowledged, as the time may be up before there is room.
        for fragment in fragments[: self.add(fragments)]:
            self.next[fragment.environment] = fragment.sequence

    @rule(data=st.data())
    def add_again(self, data):
        if self.sent:
            self.add([data.draw(st.sampled_from(self.sent))])

    @rule(n=st.integers(1, 5), ahead=st.sampled_from([None, None, -1, 0, 1]))
    def fetch(self, n, ahead):
        if n > self.capacity:
            with pytest.raises(ValueError, match=rf"1 to {self.capacity} \(capacity\).*got {n}"):
                self.buffer.fetch(n, 0)
            return
        if self.closed:
            with pytest.raises(ClosedError, match="fetch: the buffer is closed"):
                self.buffer.fetch(n, 0)
            return
        version = None if ahead is None else self.version + ahead
        if version is not None:
            self.advance(version)
        # By their keys: what can be fetched again is a copy.
        of_key = {fragment.key: fragment for fragment, _ in self.held}
        fragments = [of_key[found.key] for found in self.buffer.fetch(n, 0, version)]
        if len(self.held) < n:
            assert fragments == []
            return
        held = [fragment for fragment, _ in self.held]
        if self.order == "oldest":
            assert fragments == held[:n]
        elif self.order == "newest":
            assert fragments == held[::-1][:n]
        assert len(set(fragments)) == n
        assert set(fragments) <= set(held)
        assert not any(self.too_old(fragment) for fragment in fragments)
        for one in self.held:
            if one[0] in fragments:
                self.counts["accepted"] += one[1] == 0
                one[1] += 1
        self.held = [one for one in self.held if one[1] < self.max_reuse]

    @rule(step=st.integers(-1, 2))
    def new_version(self, step):
        self.buffer.new_version(self.version + step)
        self.advance(self.version + step)

    def advance(self, version):
        self.version = max(version, self.version)
        old = [one for one in self.held if self.too_old(one[0])]
        self.counts["stale"] += sum(draws == 0 for _, draws in old)
        self.held = [one for one in self.held if one not in old]

    @rule(really=st.integers(0, 9))
    def close(self, really):
        if really == 0:
            self.buffer.close()
            self.counts["lost"] += sum(draws == 0 for _, draws in self.held)
            self.held, self.closed = [], True

    @invariant()
    def same(self):
        self.counts["queued"] = sum(draws == 0 for _, draws in self.held)
        assert self.buffer.prepared() == len(self.held)
        assert self.buffer.ledger.counts() == self.counts
        assert self.buffer.duplicates == self.duplicates
        assert self.buffer.version == self.version
        self.buffer.ledger.check()


TestBufferModel = BufferModel.TestCase
TestBufferModel.settings = settings(max_examples=60, stateful_step_count=30)


@contextmanager
def in_thread(function, *args):
    """Run a function beside; what it returned, or raised, is in the list that is given."""
    results = []

    def run():
        try:
            results.append(function(*args))
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield results
    finally:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def fragments_of(environment, n, **options):
    return [make_fragment(i, length=1, environment=environment, **options) for i in range(n)]


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_producers_wait_until_there_is_room():
    with ReplayBuffer(2) as buffer, in_thread(buffer.add, fragments_of(0, 5), PATIENCE_S) as added:
        wait_until(lambda: buffer.prepared() == 2)
        got = buffer.fetch(2, 0)
        got += buffer.fetch(2, PATIENCE_S)
        got += buffer.fetch(1, PATIENCE_S)
        assert [fragment.sequence for fragment in got] == [0, 1, 2, 3, 4]
    assert added == [5]


def test_the_trainer_waits_until_there_are_enough():
    with ReplayBuffer(3) as buffer, in_thread(buffer.fetch, 3, PATIENCE_S) as fetched:
        for fragment in fragments_of(0, 3):
            assert not fetched
            assert buffer.add([fragment], 0) == 1
    assert [fragment.sequence for fragment in fetched[0]] == [0, 1, 2]


def test_what_became_too_old_makes_room():
    with ReplayBuffer(1, max_staleness=0) as buffer:
        buffer.add(fragments_of(0, 1), 0)
        with in_thread(buffer.add, fragments_of(1, 1, version=1), PATIENCE_S) as added:
            buffer.new_version(1)
        assert added == [1]
        assert [fragment.environment for fragment in buffer.fetch(1, 0)] == [1]


def test_staleness_is_judged_by_the_oldest_step():
    newer = make_fragment(length=3, version=5)
    newer.env.version.flags.writeable = True
    newer.env.version[1] = 3
    with ReplayBuffer(1, max_staleness=1) as buffer:
        buffer.new_version(4)
        buffer.add([newer], 0)
        assert buffer.prepared() == 1
        assert buffer.fetch(1, 0, version=5) == []


def test_producers_that_came_longest_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(replay_buffer, "MAX_PRODUCERS", 2)
    running, *ended = (make_fragment(producer=f"worker {n}") for n in range(4))
    with ReplayBuffer(8) as buffer:
        for one in ended:
            assert buffer.add([one, running], 0) == 2
        # That of the first worker came with each, and the last one's is the only other that is known.
        assert buffer.duplicates == 2
        buffer.add([running, ended[-1]], 0)
        assert (buffer.duplicates, buffer.prepared()) == (4, 4)
        buffer.add([ended[0]], 0)
        assert (buffer.duplicates, buffer.prepared()) == (4, 5)


@pytest.mark.parametrize("waits", ["add", "fetch"])
def test_close_wakes_all_who_wait(waits):
    buffer = ReplayBuffer(1)
    buffer.add(fragments_of(0, waits == "add"), 0)
    call = (buffer.add, fragments_of(1, 2)) if waits == "add" else (buffer.fetch, 1)
    with in_thread(*call, PATIENCE_S) as one, in_thread(*call, PATIENCE_S) as other:
        time.sleep(0.05)
        buffer.close()
        buffer.close()
    for (error,) in (one, other):
        assert isinstance(error, ClosedError)
        assert str(error) == f"ReplayBuffer: {waits}: the buffer is closed"
    buffer.ledger.check()


def test_what_was_taken_in_before_the_end_is_acknowledged():
    buffer = ReplayBuffer(2)
    with in_thread(buffer.add, fragments_of(0, 5), PATIENCE_S) as added:
        wait_until(lambda: buffer.prepared() == 2)
        buffer.close()
    # Otherwise a sender would count as rejected what the buffer counts as its own.
    assert added == [2]
    assert buffer.ledger.counts()["added"] == 2


def test_many_producers_and_consumers():
    """Every fragment arrives once, in its environment's order, and never are there more than fit."""
    got, most = [], []
    with ReplayBuffer(4) as buffer:

        def produce(environment):
            fragments = fragments_of(environment, 50)
            while fragments:
                # Less than is there, so that some calls end halfway.
                fragments = fragments[buffer.add(fragments[:7], 0.002) :]

        def consume():
            while len(got) < 200:
                got.extend(buffer.fetch(2, 0.01))
                most.append(buffer.prepared())

        threads = [threading.Thread(target=produce, args=(i,)) for i in range(4)]
        threads.append(threading.Thread(target=consume))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert buffer.ledger.counts() == {
            "added": 200,
            "accepted": 200,
            "stale": 0,
            "lost": 0,
            "queued": 0,
        }
    assert max(most) <= 4
    for environment in range(4):
        mine = [fragment.sequence for fragment in got if fragment.environment == environment]
        assert mine == list(range(50))


@pytest.mark.parametrize("order", ["random", "newest", "oldest"])
def test_the_same_seed_fetches_the_same(order):
    def fetched():
        with ReplayBuffer(20, order=order, max_reuse=3, seed=8) as buffer:
            buffer.add(fragments_of(0, 20), 0)
            return [fragment.sequence for _ in range(5) for fragment in buffer.fetch(4, 0)]

    assert fetched() == fetched()
    if order == "random":
        assert fetched()[:4] not in ([0, 1, 2, 3], [19, 18, 17, 16])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": 0}, "capacity: expected at least 1, got 0"),
        ({"capacity": 1, "max_reuse": 0}, "max_reuse: expected at least 1, got 0"),
        ({"capacity": 1, "max_staleness": -1}, "max_staleness: expected 0 or more, .* got -1"),
        ({"capacity": 1, "order": "best"}, r"order: expected one of \['oldest', .* got 'best'"),
        ({"capacity": 1, "order": "random"}, "seed: expected one for the order 'random'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=f"ReplayBuffer: {message}"):
        ReplayBuffer(**arguments)


def test_what_is_fetched_can_be_changed_and_fetched_again_as_it_was():
    fragment = make_fragment()
    expected = np.array(fragment.env.reward)
    with ReplayBuffer(4, max_reuse=3) as buffer:
        buffer.add([fragment], 0)
        for _ in range(3):
            (found,) = buffer.fetch(1, 0)
            np.testing.assert_array_equal(found.env.reward, expected)
            # As PyTorch does, which asks no array whether it may be written to.
            found.env.reward.flags.writeable = True
            found.env.reward[...] = np.nan
