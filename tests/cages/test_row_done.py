"""Rows of workers that are stopped or killed are asked whether they are done."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

import numpy as np
import pytest
from cage_makers import begin, forked
from stopped_workers import KINDS, stopped
from waiting import alarm, until

from parllel.cages import PendingRows
from parllel.cages.stepping.pending_rows import await_rows
from parllel.errors import ClosedError, WorkerDiedError, WrongStateError
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import await_done, run


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_not_done_while_a_worker_is_stopped(kind: str) -> None:
    with KINDS[kind]() as cage:
        begin(cage)
        for start in (partial(cage.start_row, 0), partial(cage.start_decorrelation, [1] * cage.n)):
            with stopped(cage):
                start()
                assert not cage.row_done()
                time.sleep(0.05)  # for the others to finish their shares
                assert not cage.row_done()
            await_done(cage)
            cage.finish_row()
        assert cage.collect_completed_trajs() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_a_worker_that_was_killed_is_done(kind: str) -> None:
    with KINDS[kind]() as cage:
        begin(cage)
        with stopped(cage) as pid:
            cage.start_row(0)
            assert not cage.row_done()
            os.kill(pid, signal.SIGKILL)
            await_done(cage)
            with pytest.raises(WorkerDiedError, match="SIGKILL during step at row 0"):
                cage.finish_row()


class CalledEnv(CountingEnv):
    """Has methods that take their time."""

    def pause(self) -> str:
        time.sleep(0.2)
        return "late"


@pytest.mark.parametrize("end", ["answers", "dies", "is closed"])
def test_the_answer_to_an_interrupted_call_is_not_taken_for_a_row(end: str) -> None:
    with forked(CalledEnv) as cage:
        samples = begin(cage)
        with alarm(0.05):
            cage.pause()
        until(cage._child.poll)
        rows = PendingRows[int]()
        with stopped(cage) as pid:
            cage.start_row(0)
            rows.add(0, cage)
            assert rows.wait(0.05) == []
            assert not cage.row_done()
            if end == "dies":
                os.kill(pid, signal.SIGKILL)
        assert rows.wait(20.0) == [0]
        assert cage.row_done()
        # By an object of its own: the answer has left the pipe.
        assert await_rows([(cage, 0)], 20.0) == [0]
        if end == "dies":
            with pytest.raises(WorkerDiedError, match="SIGKILL during step at row 0"):
                cage.finish_row()
            return
        if end == "is closed":
            cage.close()
            with pytest.raises(ClosedError, match=r"used after close\(\)"):
                cage.finish_row()
            return
        cage.finish_row()
        run(cage, "start_row", 1)
        assert np.floor(np.asarray(samples.env.reward)[:2, 0]).tolist() == [1.0, 2.0]


def test_an_environment_that_is_being_made_is_awaited() -> None:
    with forked(partial(time.sleep, 0.5)) as hanging, forked(CountingEnv) as cage:
        assert not hanging.row_done()
        with pytest.raises(WrongStateError, match=r"finish_row\(\) was called without a start"):
            hanging.finish_row()
        assert await_rows([(hanging, 0), (cage, 0)], 20.0) == [1]
        with pytest.raises(WrongStateError, match=r"finish_row\(\) was called without a start"):
            cage.finish_row()
        assert cage.spaces
        # From here on only a row can be waited for.
        with pytest.raises(WrongStateError, match=r"row_done\(\) was called without a start"):
            cage.row_done()
