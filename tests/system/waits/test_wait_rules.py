"""When a wait ends, what it costs, and what is refused."""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing.connection import Connection

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wait_makers import KINDS, LONG_S, make
from waiting import lasting, soon

from parllel.system.processes.child import Child
from parllel.system.waits import Wait
from parllel.system.waits.spin_budget import SpinBudget

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(params=KINDS)
def wait(request: pytest.FixtureRequest) -> Wait:
    return make(request.param)


# ---------------------------------------------------------------------- ends


def test_words_are_kept_apart_and_hold_any_int32(wait: Wait) -> None:
    for value in (0, 1, -1, 2**31 - 1, -(2**31)):
        wait.post(1, value)
        assert (wait.load(0), wait.load(1)) == (0, value)
    with pytest.raises(ValueError, match="line 1: expected an int32, got 2147483648"):
        wait.post(1, 2**31)
    assert wait.load(1) == -(2**31)
    assert wait.n_lines == 2
    with pytest.raises(IndexError):
        wait.load(2)


@pytest.mark.parametrize("timeout_s", [-1.0, 0.0, 60.0, float("inf")])
def test_word_that_has_changed_is_returned_at_once(wait: Wait, timeout_s: float) -> None:
    wait.post(0, 5)
    with lasting(most_s=LONG_S):
        assert wait.wait(0, 4, timeout_s) == 5


@pytest.mark.parametrize("timeout_s", [0.0, 0.002, 0.03, 0.25])
def test_wait_times_out_in_time_and_not_early(wait: Wait, timeout_s: float) -> None:
    with lasting(least_s=timeout_s, most_s=timeout_s + LONG_S):
        assert wait.wait(0, 0, timeout_s) == 0


def test_wake_ends_a_sleep_and_only_one(wait: Wait) -> None:
    with soon(wait.wake, 0), lasting():
        assert wait.wait(0, 0, LONG_S) == 0
    with lasting(least_s=0.05):
        assert wait.wait(0, 0, 0.05) == 0


def test_wake_before_the_wait_is_not_lost(wait: Wait) -> None:
    wait.wake(0)
    wait.wake(0)
    with lasting():
        assert wait.wait(0, 0, LONG_S) == 0
    assert wait.load(0) == 0
    with lasting(least_s=0.05):
        assert wait.wait(0, 0, 0.05) == 0


def test_each_word_is_waited_for(wait: Wait) -> None:
    with soon(wait.post, 1, 7, after_s=0.03), soon(wait.post, 0, 7, after_s=0.06):
        assert wait.wait_each(0, 2, 7, LONG_S) == 2
    assert wait.wait_each(0, 2, 7, 0.0) == 2
    assert wait.wait_each(1, 1, 7, LONG_S) == 1


def test_a_word_passes_through_others_on_its_way(wait: Wait) -> None:
    def count() -> None:
        for value in range(1, 50):
            wait.post(1, value)
            time.sleep(0.0005)
        wait.post(0, 50)
        wait.post(1, 50)

    thread = threading.Thread(target=count)
    thread.start()
    assert wait.wait_each(0, 2, 50, LONG_S) == 2
    assert (wait.load(0), wait.load(1)) == (50, 50)
    thread.join()


def test_what_does_not_come_is_counted_up_to(wait: Wait) -> None:
    wait.post(0, 3)
    with lasting(least_s=0.15):
        assert wait.wait_each(0, 2, 3, 0.15) == 1
    assert wait.wait_each(0, 2, 4, 0.0) == 0


def test_a_negative_word_ends_the_wait_for_all(wait: Wait) -> None:
    wait.post(0, 3)
    with soon(wait.post, 1, -3), lasting():
        assert wait.wait_each(0, 2, 3, LONG_S) == 1
        assert wait.wait_each(0, 2, 3, LONG_S) == 1


def test_wake_ends_the_wait_for_all(wait: Wait) -> None:
    wait.post(0, 3)
    with soon(wait.wake, 1), lasting():
        assert wait.wait_each(0, 2, 3, LONG_S) == 1


@pytest.mark.parametrize("timeout_s", [0.05, LONG_S])
def test_a_waiter_for_some_words_waits_as_for_each(wait: Wait, timeout_s: float) -> None:
    both, second = (wait.each_waiter(first, 2 - first, timeout_s) for first in (0, 1))
    with soon(wait.post, 1, 7, after_s=0.005), soon(wait.post, 0, 7, after_s=0.01):
        while both(7) != 2:  # the threads may start late
            pass
    assert (both(7), second(7)) == (2, 1)
    wait.post(1, -3)
    with lasting():
        assert (both(7), second(7)) == (1, 0)
    wait.post(1, 8)
    with soon(wait.wake, 1, after_s=0.005), lasting():
        assert both(7) == 1
    if timeout_s != LONG_S:
        # A call of `wake` may have been late, and ends the next wait.
        second(7)
        with lasting(least_s=timeout_s):
            assert (both(7), second(8)) == (1, 1)


def wake_parent(connection: Connection, *, inherited: Wait) -> None:
    connection.send_bytes(b"ready")
    time.sleep(0.1)
    inherited.wake(1)


def test_another_process_can_wake(wait: Wait) -> None:
    child = Child(wake_parent, inherited=wait, start_method="fork")
    try:
        assert child.receive(LONG_S, "at start") == b"ready"
        with lasting():
            assert wait.wait(1, 0, LONG_S) == 0
    finally:
        child.kill()


def test_thread_runs_while_another_waits(wait: Wait) -> None:
    with soon(wait.post, 0, 3):
        assert wait.wait(0, 0, LONG_S) == 3


# ---------------------------------------------------------------------- signals, cost


def interrupt(connection: Connection, parent: int) -> None:
    connection.send_bytes(b"ready")
    time.sleep(0.15)
    sent = time.monotonic()
    os.kill(parent, signal.SIGINT)
    connection.send_bytes(str(sent).encode())


@pytest.mark.parametrize("taken_by_other_thread", [False, True])
def test_interrupt_is_raised_soon(wait: Wait, taken_by_other_thread: bool) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    taken_s = []
    try:
        if taken_by_other_thread:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        for _ in range(3):  # the best of three: the machine may be busy
            child = Child(interrupt, (os.getpid(),), start_method="fork")
            try:
                assert child.receive(LONG_S, "at start") == b"ready"
                with pytest.raises(KeyboardInterrupt, match=r"^$"):
                    wait.wait(0, 0, LONG_S)
                raised = time.monotonic()
                taken_s.append(raised - float(child.receive(LONG_S, "telling")))
            finally:
                child.kill()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        done.set()
        thread.join()
    assert min(taken_s) < 0.3
    wait.post(0, 1)  # as good as before
    assert wait.wait(0, 0, LONG_S) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spin_us", [0.0, 200.0, 10_000.0])
@pytest.mark.few(2)
def test_long_wait_takes_hardly_any_processor_time(kind: str, spin_us: float) -> None:
    wait = make(kind, spin_us=spin_us)
    before = time.process_time()
    assert wait.wait(0, 0, 1.0) == 0
    assert time.process_time() - before < 0.2


# ---------------------------------------------------------------------- budget

LIMIT_NS = 50_000


def test_spin_budget_follows_the_usual_wait() -> None:
    budget = SpinBudget(LIMIT_NS)
    for _ in range(100):
        budget.record(9_000, True)
    assert budget.next_ns() == pytest.approx(18_000, rel=0.01)
    for _ in range(20):
        budget.record(LIMIT_NS, False)
    spins = [budget.next_ns() for _ in range(96)]
    assert [i for i, spin in enumerate(spins, 1) if spin] == [32, 64, 96]
    assert set(spins) == {0, LIMIT_NS}
    budget.record(7_000, True)
    assert budget.next_ns() == 14_000
    for _ in range(100):
        budget.record(1_000, True)
    assert budget.next_ns() == LIMIT_NS // 4


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, LIMIT_NS), st.booleans(), st.integers(0, 40)), max_size=30)
)
def test_compiled_budget_is_the_same(spins: list[tuple[int, bool, int]]) -> None:
    if "compiled" not in KINDS:
        pytest.skip("not available here")
    from parllel.system.waits import compiled

    budget, memory = SpinBudget(LIMIT_NS), np.zeros(compiled.MEMORY_WORDS, np.int64)
    memory[0] = LIMIT_NS // 2
    address = memory.ctypes.data
    for spun_ns, changed, asks in spins:
        for _ in range(asks):
            assert compiled.spin_budget(address, LIMIT_NS) == budget.next_ns()
        budget.record(spun_ns, changed)
        compiled.record(address, LIMIT_NS, spun_ns, changed)
        assert memory[0] == budget.usual_ns
