"""Workers are killed, stopped and continued at random moments."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from functools import partial
from typing import Any

import pytest
from cage_makers import forked, synchronized

from parllel.cages import ProcessCage, SynchronizedProcessCage
from parllel.errors import WorkerDiedError, WorkerTimeoutError
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_faults_contract import (
    WITHIN_S,
    set_timeout,
    wait_until_gone,
    within,
)
from parllel.testing.cages.cage_hooks import FIRST, close_quietly, record_columns, run_groups
from parllel.testing.cages.row_reference import (
    assert_same_batches,
    draw_actions,
    make_samples,
    simulate,
)

T, N = 5, 4
SETTINGS: list[dict[str, Any]] = [
    {"n_workers": 2},
    {"n_workers": 2, "wait": "compiled", "n_groups": 2},
    {"n_workers": 3, "wait": "semaphore"},
    {"n_workers": 2, "wait": "compiled", "participate": True, "n_groups": 2},
]
LENGTHS = ((1, 3), (7,), (2,), (20,))


def make(i: int, **options: Any) -> SynchronizedProcessCage:
    factories = [partial(CountingEnv, lengths, layout="dict") for lengths in LENGTHS]
    return synchronized(factories, **{**SETTINGS[i % len(SETTINGS)], **options})


def bind(cage: Any, T: int = T) -> Any:
    samples = make_samples(CountingEnv(layout="dict"), T, N + 2, storage="managed")
    cage.set_samples_buffer(samples, slice(FIRST, FIRST + cage.n))
    return samples


def alone(i: int) -> ProcessCage:
    return forked(partial(CountingEnv, (1, 3), layout="dict"), index=i, seed=i)


def work(cage: Any, timer: threading.Timer, late: bool) -> None:
    """Use all of a cage, without an end; with `late` the time begins when it is ready."""
    if not late:
        timer.start()
    bind(cage)
    if late:
        timer.start()
    while True:
        run_groups(cage, "start_reset", 0)
        for t in range(T):
            run_groups(cage, "start_row" if t % 2 else "start_random_row", t)
        cage.collect_completed_trajs()
        cage.collect_final_observations()
        assert cage.gravity == ([9.8] * N if cage.n > 1 else 9.8)
        if isinstance(cage, ProcessCage):
            cage.step_async(1)
            cage.await_step()


NAMES: dict[Any, str] = {
    alone: r"cage \d+( \(CountingEnv\))?: process \d+ was killed by SIGKILL "
    r"(during|before|while it was made)",
    make: r"worker \d \(environments [\d, -]+( of CountingEnv)?\): process \d+ was killed by SIGKILL "
    r"(during|before|while its environments were made)",
}


@pytest.mark.parametrize("trials", [24, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize("made", NAMES)
@pytest.mark.few(1)
def test_a_worker_killed_at_any_moment_gives_a_clear_error(made: Any, trials: int) -> None:
    moments = random.Random(0)
    texts = []
    for i in range(trials):
        killed: list[float] = []
        cage = made(i)
        pids = [cage.pid] if isinstance(cage, ProcessCage) else cage.pids

        def kill(pid: int = moments.choice(pids), killed: list[float] = killed) -> None:
            os.kill(pid, signal.SIGKILL)
            killed.append(time.monotonic())  # not before: this thread may have to wait its turn

        timer = threading.Timer(moments.uniform(0.0, 0.04), kill)
        with cage:
            try:
                work(cage, timer, late=i % 3 > 0)
            except WorkerDiedError as error:
                noticed = time.monotonic()
                texts.append(str(error))
        timer.join()
        assert noticed - killed[0] < WITHIN_S
        assert all(wait_until_gone(pid) for pid in pids)
    assert len(texts) == trials
    assert [text for text in texts if not re.match(NAMES[made], text)] == []
    # The moments were many: during rows and resets, in calls, and before the first.
    assert len({re.sub(r"[\d()]", "", text.split("SIGKILL")[1]) for text in texts}) >= 3


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
@pytest.mark.few(2)
def test_workers_that_are_stopped_and_continued_lose_nothing(setting: int) -> None:
    moments = random.Random(setting)
    T, batches = 50, 3
    actions = [draw_actions(CountingEnv().action_space, i, batches, T) for i in range(N)]
    cage = make(setting)
    over = threading.Event()

    def disturb() -> None:
        while not over.is_set():
            pid = moments.choice(cage.pids)
            os.kill(pid, signal.SIGSTOP)
            over.wait(moments.uniform(0.0, 0.02))
            os.kill(pid, signal.SIGCONT)
            over.wait(moments.uniform(0.0, 0.01))

    with cage:
        samples = bind(cage, T)
        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            found = record_columns(cage, samples, actions)
        finally:
            over.set()
            thread.join()
    for i, lengths in enumerate(LENGTHS):
        expected = simulate(CountingEnv(lengths, layout="dict"), i, actions[i])
        assert_same_batches(found[i], expected)


@pytest.mark.parametrize("moment", ["idle", "row", "call"])
@pytest.mark.few(2)
def test_a_worker_that_is_stopped_for_good_is_killed(moment: str) -> None:
    for i in range(len(SETTINGS)):
        cage = make(i)
        pids = cage.pids
        with cage:
            bind(cage)
            run_groups(cage, "start_reset", 0)
            set_timeout(cage, 0.3)
            os.kill(pids[1], signal.SIGSTOP)
            if moment == "row":
                cage.start_row(0)
            with (
                within(0.3 + WITHIN_S),
                pytest.raises(WorkerTimeoutError, match=r"worker 1 \(.*did not answer within 0\.3"),
            ):
                cage.gravity if moment == "call" else finish(cage, moment)
        assert all(wait_until_gone(pid) for pid in pids)


def finish(cage: SynchronizedProcessCage, moment: str) -> None:
    if moment == "row":
        cage.finish_row()
    else:
        run_groups(cage, "start_row", 0)


def test_a_stopped_worker_does_not_hold_up_a_long_request() -> None:
    cage = make(0, n_workers=1)
    with cage:
        bind(cage)
        set_timeout(cage, 0.3)
        os.kill(cage.pids[0], signal.SIGSTOP)
        with (
            within(0.3 + WITHIN_S),
            pytest.raises(WorkerTimeoutError, match=r"worker 0 .*: process \d+ did not accept"),
        ):
            cage.env_method("unknown", bytes(10_000_000))  # more than a pipe holds
    assert wait_until_gone(cage.pids[0])
    close_quietly(cage)
