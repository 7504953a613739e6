"""When listeners are called, and what counts as one change."""

from __future__ import annotations

import threading

import pytest

from parllel.distributed.operators.board.board_condition import BoardCondition


def test_listeners_are_called_once_until_somebody_looks():
    condition, calls = BoardCondition(), []
    end = condition.listen(lambda: calls.append("a"))
    condition.listen(lambda: calls.append("b"))
    for _ in range(3):
        with condition:
            condition.note()
    assert (condition.version, calls) == (3, ["a", "b"])
    with condition.look() as version:
        assert version == 3
    with condition:
        pass  # nothing was changed
    assert calls == ["a", "b"]
    end()
    end()
    with condition:
        condition.note()
    assert calls == ["a", "b", "b"]


def test_what_is_done_within_one_lock_is_one_change_and_announced_without_it():
    condition, free = BoardCondition(), []

    def look():
        with condition.look() as version:
            free.append(version)

    def changed():
        # Another thread gets the lock while a listener runs.
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(20)

    condition.listen(changed)
    with condition:
        with condition:
            condition.note()
        assert free == []
        condition.note()
    assert free == [1]


def test_an_error_keeps_the_change_and_gives_the_lock_back():
    condition, calls = BoardCondition(), []
    condition.listen(lambda: calls.append(1))

    def fail():
        with condition:
            condition.note()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert (condition.version, calls) == (1, [1])


def test_who_waits_is_woken_by_the_change_of_another():
    condition, seen = BoardCondition(), []
    began = threading.Event()

    def wait():
        with condition:
            began.set()
            condition.wait(30.0)
            seen.append(condition.version)

    thread = threading.Thread(target=wait)
    thread.start()
    began.wait(20)
    with condition:
        condition.note()
    thread.join(20)
    assert seen == [1]
