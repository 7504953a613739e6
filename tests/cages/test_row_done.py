"""Rows of workers that are stopped or killed are asked whether they are done."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

import pytest
from stopped_workers import KINDS, bind, stopped

from parllel.errors import WorkerDiedError
from parllel.testing.cage_hooks import await_done


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_not_done_while_a_worker_is_stopped(kind: str) -> None:
    with KINDS[kind]() as cage:
        bind(cage)
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
        bind(cage)
        with stopped(cage) as pid:
            cage.start_row(0)
            assert not cage.row_done()
            os.kill(pid, signal.SIGKILL)
            await_done(cage)
            with pytest.raises(WorkerDiedError, match="SIGKILL during step at row 0"):
                cage.finish_row()
