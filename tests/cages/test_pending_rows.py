"""Rows of cages of several kinds are waited for at once."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from typing import Any

import pytest
from cage_makers import begin, forked, synchronized
from start_methods import SENT_SPAWN_SOAKS
from stopped_workers import KINDS, NINE, stopped
from waiting import soon

from parllel.cages import PendingRows, VectorizedCage
from parllel.cages.cage_interface import PendingRow
from parllel.cages.stepping import pending_rows
from parllel.cages.stepping.pending_rows import await_rows
from parllel.cages.workers.wakeup_pipe import WakeupPipe
from parllel.errors import ClosedError, WorkerDiedError, WrongStateError
from parllel.system.processes.several import WaitSet
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_faults_contract import WITHIN_S
from parllel.testing.cages.cage_hooks import await_done

LONG_S = 20.0


class NapEnv(CountingEnv):
    """Takes up to a millisecond for a step."""

    def __init__(self, seed: int) -> None:
        super().__init__(9)
        self._naps = random.Random(seed)

    def step(self, action: Any) -> Any:
        time.sleep(self._naps.choice([0.0, 1e-4, 1e-3]))
        return super().step(action)


class AskedCage(VectorizedCage):
    """Says that a row is done when it has been asked for the third time."""

    _asked = 0

    def start_row(self, t: int, group: int = 0) -> None:
        super().start_row(t, group)
        self._asked = 0

    def awaited(self, group: int = 0) -> PendingRow:
        super().awaited(group)  # refuses what was not started
        return Third(self)

    def ask(self) -> bool:
        self._asked += 1
        return self._asked >= 3


class Third(PendingRow):
    def __init__(self, cage: AskedCage) -> None:
        self._cage = cage

    def done(self) -> bool:
        return self._cage.ask()


@pytest.fixture
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a row be found by what is waited for alone."""
    monkeypatch.setattr(pending_rows, "SLICE_S", LONG_S)


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("others", ["pipes and words", "a cage that has no handles"])
def test_those_that_are_done_are_found_among_those_that_are_not(others: str) -> None:
    makers: list[Any] = [*KINDS.values()]
    if others == "a cage that has no handles":
        makers.append(lambda: AskedCage([NINE], seeds=[0]))
    cages = [make() for make in makers]
    try:
        for cage in cages:
            begin(cage)
        for held in range(len(KINDS)):
            with stopped(cages[held]):
                rows = [(cage, len(cage.groups) - 1) for cage in reversed(cages)]
                for cage, group in rows:
                    cage.start_row(0, group)
                left = list(range(len(rows)))
                while len(left) > 1:
                    done = await_rows([rows[i] for i in left], LONG_S)
                    assert done
                    for i in [left[position] for position in done]:
                        left.remove(i)
                        rows[i][0].finish_row(rows[i][1])
                assert rows[left[0]][0] is cages[held]
                assert await_rows([rows[left[0]]], 0.01) == []
                assert await_rows([rows[left[0]]], -1.0) == []
            assert await_rows([rows[left[0]]], LONG_S) == [0]
            rows[left[0]][0].finish_row(rows[left[0]][1])
    finally:
        for cage in cages:
            cage.close()


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", KINDS)
def test_a_death_ends_the_wait(kind: str) -> None:
    with KINDS[kind]() as cage, VectorizedCage([NINE]) as idle:
        begin(cage)
        begin(idle)
        with stopped(cage) as pid:
            cage.start_row(0)
            with soon(os.kill, pid, signal.SIGKILL, after_s=0.1):
                assert await_rows([(cage, 0)], LONG_S) == [0]
            # Among others, and before the wait as well.
            idle.start_row(0)
            assert await_rows([(idle, 0), (cage, 0)], LONG_S) == [0, 1]
            with pytest.raises(WorkerDiedError, match="SIGKILL during step at row 0"):
                cage.finish_row()


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("start_method", SENT_SPAWN_SOAKS)
@pytest.mark.parametrize("wait", ["compiled", "semaphore"])
def test_no_row_of_words_is_missed(wait: str, start_method: str) -> None:
    """A byte that got lost would cost 20 seconds."""
    rounds = 60
    with synchronized(
        [partial(NapEnv, seed) for seed in range(6)],
        n_groups=3,
        wait=wait,
        start_method=start_method,
    ) as cage:
        begin(cage)
        began = time.monotonic()
        counts, rows = [0, 0, 0], PendingRows[int]()
        for group in range(3):
            cage.start_row(0, group)
            rows.add(group, cage, group)
        while min(counts) < rounds:
            for group in rows.wait(LONG_S):
                cage.finish_row(group)
                counts[group] += 1
                cage.start_row(counts[group] % 4, group)
                rows.add(group, cage, group)
        assert time.monotonic() - began < LONG_S
        for group in range(3):
            cage.finish_row(group)


@pytest.mark.usefixtures("no_second_look")
def test_a_row_that_is_done_between_two_questions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with synchronized([NINE] * 4, n_workers=1, n_groups=2) as cage:
        begin(cage)
        with stopped(cage) as pid:
            for group in (0, 1):
                cage.start_row(0, group)
            assert await_rows([(cage, 0), (cage, 1)], 0.0) == []
            awaited = cage.awaited

            def slow(group: int = 0) -> Any:
                if group == 1:  # the first has been asked for its handles, and is done now
                    os.kill(pid, signal.SIGCONT)
                    await_done(cage, 0)
                return awaited(group)

            monkeypatch.setattr(type(cage), "awaited", lambda _, group=0: slow(group))
            assert 0 in await_rows([(cage, 0), (cage, 1)], WITHIN_S)


def test_waits_for_nothing_are_refused() -> None:
    with pytest.raises(WrongStateError, match=r"PendingRows\.wait: there are no rows"):
        await_rows([], 1.0)
    for make in KINDS.values():
        rows = PendingRows[str]()
        with make() as cage:
            begin(cage)
            with pytest.raises(WrongStateError, match="without a start"):
                rows.add("first", cage)
            assert len(rows) == 0
            cage.start_row(0)
            rows.add("first", cage)
            with pytest.raises(ValueError, match="key: expected a new key, got 'first'"):
                rows.add("first", cage)
            assert len(rows) == 1
            rows.remove("first")
            with pytest.raises(KeyError, match="first"):
                rows.remove("first")
            rows.add("again", cage)
            cage.finish_row()
            with pytest.raises(WrongStateError, match="without a start"):
                rows.wait(0.2)
        with pytest.raises(ClosedError, match=r"used after close\(\)"):
            rows.wait(0.2)
        rows.remove("again")  # although it was closed
        assert len(rows) == 0


def test_a_byte_that_another_wait_took_is_not_needed() -> None:
    with synchronized([NINE] * 4, n_workers=1, n_groups=2) as cage:
        begin(cage)
        rows = PendingRows[int]()
        for group in (0, 1):
            with stopped(cage):
                cage.start_row(0, group)
                rows.add(group, cage, group)
            await_done(cage, group)
            cage._pool.control._wakeup.drain()
        assert rows.wait(LONG_S) == [0, 1]
        assert len(rows) == 0


def test_rows_come_in_the_order_in_which_they_were_added() -> None:
    with forked(NINE) as first, synchronized([NINE] * 2) as second, AskedCage([NINE]) as third:
        cages = {"c": first, "b": second, "a": third}
        rows = PendingRows[str]()
        for key, cage in cages.items():
            begin(cage)
            cage.start_row(0)
            await_done(cage)
            rows.add(key, cage)
        assert rows.wait(LONG_S) == ["c", "b", "a"]


def heard(pipe: WakeupPipe) -> WaitSet:
    handles = WaitSet()
    handles.add(pipe, None)
    return handles


def test_a_pipe_that_is_never_drained_still_wakes() -> None:
    pipe = WakeupPipe()
    ears = heard(pipe)
    try:
        assert ears.ready(0.0) == []
        for _ in range(200_000):  # more than a pipe holds
            pipe.wake()
        assert ears.ready(0.0)
        while ears.ready(0.0):
            pipe.drain()
        pipe.drain()
        pipe.wake()
        assert ears.ready(0.0)
    finally:
        pipe.close()
        pipe.close()


def test_a_reply_that_was_read_ahead_is_found() -> None:
    with forked(NINE) as cage:
        begin(cage)
        cage.start_row(0)
        assert await_rows([(cage, 0)], LONG_S) == [0]
        # As after a message that came together with it.
        cage._child._channel._first(4, LONG_S, more=100)
        assert await_rows([(cage, 0)], LONG_S) == [0]
        cage.finish_row()
