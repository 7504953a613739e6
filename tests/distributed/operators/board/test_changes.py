"""When listeners are called, and what counts as one change."""

from __future__ import annotations

import threading

import pytest

from parllel.distributed.operators.board.changes import Changes


def test_listeners_are_called_once_until_somebody_looks():
    changes, calls = Changes(), []
    end = changes.listen(lambda: calls.append("a"))
    changes.listen(lambda: calls.append("b"))
    for _ in range(3):
        with changes:
            changes.note()
    assert (changes.version, calls) == (3, ["a", "b"])
    with changes.look() as version:
        assert version == 3
    with changes:
        pass  # nothing was changed
    assert calls == ["a", "b"]
    end()
    end()
    with changes:
        changes.note()
    assert calls == ["a", "b", "b"]


def test_what_is_done_within_one_lock_is_one_change_and_announced_without_it():
    changes, free = Changes(), []

    def look():
        with changes.look() as version:
            free.append(version)

    def changed():
        # Another thread gets the lock while a listener runs.
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(20)

    changes.listen(changed)
    with changes:
        with changes:
            changes.note()
        assert free == []
        changes.note()
    assert free == [1]


def test_an_error_keeps_the_change_and_gives_the_lock_back():
    changes, calls = Changes(), []
    changes.listen(lambda: calls.append(1))

    def fail():
        with changes:
            changes.note()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert (changes.version, calls) == (1, [1])


def test_who_waits_is_woken_by_the_change_of_another():
    changes, seen = Changes(), []
    began = threading.Event()

    def wait():
        with changes:
            began.set()
            changes.wait(30.0)
            seen.append(changes.version)

    thread = threading.Thread(target=wait)
    thread.start()
    began.wait(20)
    with changes:
        changes.note()
    thread.join(20)
    assert seen == [1]
