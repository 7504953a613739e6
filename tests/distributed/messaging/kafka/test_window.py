from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parllel.distributed.messaging.kafka.window import ReorderWindow
from parllel.distributed.messaging.transport import Record


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.data())
def test_each_comes_once_and_in_order_whatever_the_log_holds(partitions, data):
    window = ReorderWindow()
    sent = [Record("info", b"%d" % index, b"%d" % index) for index in range(len(partitions))]
    numbers = [
        window.add(record, ("info", partition))
        for record, partition in zip(sent, partitions, strict=True)
    ]
    assert window.missing() == list(zip(numbers, sent, strict=True))
    # The log has each at least once, in any order, and some that were never sent.
    log = data.draw(st.permutations(numbers + data.draw(st.lists(st.sampled_from(numbers)))))
    found = []
    for number in [99, *log]:
        window.arrive(number, b"%d" % (number - 1))
        found += window.take()
    assert sorted(found) == sorted(sent)
    for partition in set(partitions):
        of_lane = [sent[i] for i in range(len(sent)) if partitions[i] == partition]
        assert [record for record in found if record in of_lane] == of_lane
    assert len(window) == 0
    assert window.repeated == 1 + len(log) - len(numbers)


def test_content_that_was_not_sent_is_no_answer():
    window = ReorderWindow()
    record = Record("info", b"e", b"mine")
    number = window.add(record, ("info", 0))
    window.arrive(number, b"yours")
    assert window.take() == []
    assert window.missing() == [(number, record)]
    assert window.forged == 1
    window.arrive(number, b"mine")
    assert window.take() == [record]
    assert (window.forged, window.repeated) == (1, 0)


def test_what_is_given_up_holds_nothing_back():
    window = ReorderWindow()
    first, second = (Record("action", b"e", content) for content in (b"1", b"2"))
    lost = window.add(first, ("action", 0))
    window.arrive(window.add(second, ("action", 0)), b"2")
    assert window.take() == []
    assert window.drop(lost) == first
    assert window.take() == [second]
    assert window.drop(lost) is None
    assert window.missing() == []


def test_what_was_sent_before_a_reset_is_given_up():
    window = ReorderWindow()
    for content in (b"1", b"2"):
        for environment in (b"a", b"b"):
            window.add(Record("info", environment, content), ("info", 0))
        if content == b"1":
            window.forget(b"a")
    window.prune()
    kept = [(record.environment, record.content) for _, record in window.missing()]
    assert kept == [(b"b", b"1"), (b"a", b"2"), (b"b", b"2")]
