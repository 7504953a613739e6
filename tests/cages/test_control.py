from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.cages.workers.control import (
    CALL,
    FAILED,
    GO,
    MAX_BATCHES,
    MAX_GROUPS,
    RANDOM,
    STEP,
    Control,
    ControlSize,
)
from parllel.cages.workers.wakeup_pipe import WakeupPipe
from parllel.system.processes.several import WaitSet
from parllel.system.waits import available_kinds
from parllel.system.waits.wait import LINE_WORDS
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import FIRST, record_columns
from parllel.testing.cages.row_reference import assert_same_batches, draw_actions, make_samples

sizes = st.builds(ControlSize, st.integers(1, 40), st.integers(1, MAX_GROUPS))


@given(sizes)
def test_every_line_has_one_writer(size: ControlSize) -> None:
    # The groups, and calls.
    done = [
        size.done_line(group, worker)
        for group in range(size.n_groups + 1)
        for worker in range(size.n_workers)
    ]
    assert [GO, *done, size.listening_line] == list(range(size.n_lines))


@given(sizes, st.integers(1, 2**31 - 1))
def test_numbers_follow_each_other(size: ControlSize, number: int) -> None:
    number = min(number, size.last_number)
    kind = available_kinds()[0]
    lines, sleep_slots = size.allocate(kind)
    control = Control(size, lines, kind, 0.0, sleep_slots, None)
    following = control.command_after(number)[0]
    assert 1 <= following <= size.last_number < 2**31
    assert control.command_after(size.last_number)[0] == 1
    # Its record comes after that of its predecessor, where numbers start again too.
    assert following % size.n_records == (number + 1) % size.n_records


@pytest.mark.parametrize("kind", available_kinds())
def test_records_reach_the_other_end(kind: str) -> None:
    size = ControlSize(2, MAX_GROUPS)
    lines, sleep_slots = size.allocate(kind)
    mine, theirs = (Control(size, lines, kind, 0.0, sleep_slots, None) for _ in range(2))
    mine.number = size.last_number - 3
    sent: list[tuple[int, tuple[int, int, int, int]]] = []
    for i in range(3 * size.n_records):
        group, row = i % (MAX_GROUPS + 1), (0, 2**31 - 1, i)[i % 3]
        operation = CALL if group == MAX_GROUPS else (STEP, RANDOM)[i % 2]
        batch = (0, MAX_BATCHES - 1, i)[i // 2 % 3]
        mine.use_batch(batch)
        number = mine.command(operation, group, row)
        assert theirs.wait.load(GO) == number
        sent.append((number, (operation, group, row, batch)))
        # The last ones, as many as there are records, can still be read.
        for number, record in sent[-size.n_records :]:
            before = number - 1 or size.last_number
            assert theirs.command_after(before) == (number, *record)
    assert [number for number, _ in sent[:5]] == [
        *range(size.last_number - 2, size.last_number + 1),
        1,
        2,
    ]
    assert 2 + 2 * size.n_records == LINE_WORDS  # no group more would have room


@pytest.mark.parametrize("kind", available_kinds())
def test_bytes_follow_the_words_that_they_are_for(kind: str) -> None:
    size = ControlSize(2, 1)
    lines, sleep_slots = size.allocate(kind)
    seen: list[int] = []

    class SeeingPipe(WakeupPipe):
        def wake(self) -> None:
            seen.append(mine.wait.load(size.done_line(0, 1)))
            super().wake()

    with closing(SeeingPipe()) as pipe:
        mine, theirs = (Control(size, lines, kind, 0.0, sleep_slots, pipe) for _ in range(2))
        post_done = theirs.done_posters(worker=1)[0]
        post_done(1)
        assert seen == []  # main does not listen yet
        heard = WaitSet()
        heard.add(pipe, None)
        assert mine.listen() is pipe
        assert heard.ready(0.0) == []
        for number in (2, FAILED):
            post_done(number)
            assert heard.ready(0.0) == [(pipe, [None])]
        assert seen == [2, FAILED]
        pipe.drain()
        assert heard.ready(0.0) == []


def test_too_many_groups() -> None:
    with pytest.raises(ValueError, match=f"n_groups: expected at most {MAX_GROUPS}, got 6"):
        ControlSize(1, MAX_GROUPS + 1)


@settings(max_examples=8)
@given(laps=st.integers(3, 6), n_groups=st.integers(1, 2), automatic=st.booleans())
def test_a_cage_goes_on_when_numbers_start_again(laps: int, n_groups: int, automatic: bool) -> None:
    n, T, batches = 4, 5, 6
    factories = [partial(CountingEnv, lengths) for lengths in ((3, 1), (2,), (9,), (1, 4))]
    actions = [draw_actions(factories[0]().action_space, i, batches, T) for i in range(n)]
    found: list[Any] = []
    made_with: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        made = ControlSize.__init__

        def made_small(self: ControlSize, n_workers: int, n_groups: int) -> None:
            made(self, n_workers, n_groups)
            self.last_number = laps * self.n_records
            made_with.append(n_groups)

        patch.setattr(ControlSize, "__init__", made_small)
        for cage in (
            VectorizedCage(factories, seeds=range(n), reset_automatically=automatic),
            SynchronizedProcessCage(
                factories,
                seeds=range(n),
                n_workers=2,
                n_groups=n_groups,
                reset_automatically=automatic,
                start_method="fork",
                timeout_s=20.0,
            ),
        ):
            samples = make_samples(CountingEnv(), T, n + 2, storage="managed")
            with cage:
                cage.set_samples_buffer(samples, slice(FIRST, FIRST + n))
                found.append(record_columns(cage, samples, actions, automatic=automatic))
    for one, other in zip(*found, strict=True):
        assert_same_batches(one, other)
    assert made_with == [n_groups]  # rows of all batches are more than there are numbers
    assert np.asarray(samples.env.reward).any()
