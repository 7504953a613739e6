"""Children answer, die, hang and end; under every start method."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from typing import Any

import child_targets as targets
import pytest
from start_methods import METHODS
from starting import LONG_S, Start, ready
from waiting import until

from parllel.errors import ClosedError, WorkerDiedError, WorkerError, WorkerTimeoutError
from parllel.system.processes.child import Child
from parllel.system.processes.launch import check_start_method, default_start_method
from parllel.system.processes.process_table import process_runs

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


# ---------------------------------------------------------------------- talking


def test_messages_go_to_the_child_and_back(start_any: Start) -> None:
    child = ready(start_any(targets.echo))
    messages = [b"", b"x", b"\0" * 70_000, bytes(range(255)) * 3]
    for message in messages:
        child.send_bytes(message)
        assert child.receive(LONG_S, "echoing") == message
    for message in messages[:2]:  # two under way at once
        child.send_bytes(message)
    assert [child.receive(LONG_S, "echoing") for _ in range(2)] == messages[:2]
    assert child.alive
    child.send_bytes(b"leave")
    until(lambda: not process_runs(child.pid))


def test_big_message_comes_whole(start_fork: Start) -> None:
    child = ready(start_fork(targets.echo))
    message = b"\0" + os.urandom(1 << 20)  # never EXCEPTION first, which says that the rest is one
    for _ in range(3):
        child.send_bytes(message)
        assert child.receive(LONG_S, "echoing") == message


def test_poll_tells_of_a_reply(start_fork: Start) -> None:
    child = ready(start_fork(targets.echo))
    assert not child.poll()
    child.send_bytes(b"x")
    until(child.poll)
    assert child.receive(0.0, "echoing") == b"x"
    assert not child.poll()


def test_inherited_object_reaches_the_target_by_name(start_any: Start) -> None:
    child = start_any(targets.echo_inherited, b"got ", inherited=b"silver")
    assert child.receive(LONG_S, "inheriting") == b"got silver"


def test_lambda_and_closure_reach_the_target(start_any: Start) -> None:
    number = 41
    child = start_any(
        lambda connection, f: connection.send_bytes(f(1)), lambda n: b"%d" % (number + n)
    )
    assert child.receive(LONG_S, "computing") == b"42"


def test_reply_that_was_left_behind_is_received_before_the_death(start: Start) -> None:
    child = start(targets.say, b"one", b"two")
    until(lambda: not process_runs(child.pid))
    assert child.receive(LONG_S, "talking") == b"one"
    assert child.receive(LONG_S, "talking") == b"two"
    with pytest.raises(WorkerDiedError, match=r"cage 3: process \d+ exited with code 0 talking"):
        child.receive(LONG_S, "talking")


def test_child_has_default_signals_and_leads_a_group(start_any: Start) -> None:
    child = start_any(targets.tell_signal_rules)
    told = child.receive(LONG_S, "telling").decode()
    assert told == f"{signal.SIG_IGN!r} {signal.SIG_DFL!r} True"


# ---------------------------------------------------------------------- deaths


@pytest.mark.parametrize(
    ("way", "text"),
    [
        ("os._exit", "exited with code 7"),
        ("SIGKILL", "was killed by SIGKILL"),
        ("SIGSEGV", "was killed by SIGSEGV"),
    ],
)
def test_death_is_told_with_its_reason(start_any: Start, way: str, text: str) -> None:
    child = start_any(targets.leave_by, way)
    message = rf"^cage 3: process {child.pid} {text} during step 7$"
    with pytest.raises(WorkerDiedError, match=message):
        child.receive(LONG_S, "during step 7")
    assert not child.alive


def test_system_exit_of_the_child_does_not_end_the_parent(start_any: Start) -> None:
    child = start_any(targets.leave_by, "sys.exit")
    with pytest.raises(
        WorkerError, match=r"cage 3, process \d+, at start: SystemExit: 7"
    ) as caught:
        child.receive(LONG_S, "at start")
    assert "sys.exit(7)" in str(caught.value.__cause__)
    with pytest.raises(WorkerDiedError, match="exited with code 7"):
        child.receive(LONG_S, "afterwards")


def test_kill_from_outside_is_noticed(start: Start) -> None:
    child = ready(start(targets.be_busy))
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="was killed by SIGKILL while idle"):
        child.receive(LONG_S, "while idle")


def test_request_to_a_dead_child_tells_of_the_death(start: Start) -> None:
    child = ready(start(targets.be_busy))
    os.kill(child.pid, signal.SIGKILL)
    # Not by its death alone: a fork server that is slow may still hold a copy of its end of the pipe.
    until(child.connection.poll)
    with pytest.raises(WorkerDiedError, match="SIGKILL before it took the next request"):
        child.send_bytes(b"x")


def test_death_is_noticed_while_a_grandchild_holds_the_pipe(start: Start) -> None:
    child = start(targets.fork_and_serve)
    grandchild = int(child.receive(LONG_S, "forking"))
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="was killed by SIGKILL while idle"):
        child.receive(LONG_S, "while idle")
    assert process_runs(grandchild)
    child.kill()
    until(lambda: not process_runs(grandchild))


def test_last_words_come_before_the_death_though_a_grandchild_holds_the_pipe(start: Start) -> None:
    child = start(targets.reply_fork_and_die)
    until(lambda: not process_runs(child.pid))
    assert child.receive(LONG_S, "talking") == b"the last words"
    with pytest.raises(WorkerDiedError, match="was killed by SIGKILL"):
        child.receive(LONG_S, "talking")


@pytest.mark.parametrize("keep_pipe", [False, True])
def test_death_in_the_middle_of_a_message_is_a_death(start_fork: Start, keep_pipe: bool) -> None:
    child = start_fork(targets.send_half_a_message, keep_pipe, "die")
    with pytest.raises(WorkerDiedError, match="was killed by SIGKILL while talking"):
        child.receive(LONG_S, "while talking")


@pytest.mark.usefixtures("hasty")
def test_closed_pipe_is_noticed(start_fork: Start) -> None:
    child = start_fork(targets.close_pipe_and_stay)
    with pytest.raises(WorkerDiedError, match="stopped answering at start"):
        child.receive(LONG_S, "at start")


# ---------------------------------------------------------------------- hanging


def test_stopped_child_is_a_timeout(start: Start) -> None:
    child = ready(start(targets.echo))
    os.kill(child.pid, signal.SIGSTOP)
    child.send_bytes(b"x")
    began = time.monotonic()
    with pytest.raises(WorkerTimeoutError, match=r"did not answer within 0\.2 s during step 7"):
        child.receive(0.2, "during step 7")
    assert time.monotonic() - began >= 0.2
    os.kill(child.pid, signal.SIGCONT)
    assert child.receive(LONG_S, "after all") == b"x"
    os.kill(child.pid, signal.SIGSTOP)
    child.end(grace_s=0.1)
    until(lambda: not process_runs(child.pid))


def test_child_that_hangs_in_the_middle_of_a_message_is_a_timeout(start_fork: Start) -> None:
    child = start_fork(targets.send_half_a_message, False, "sleep")
    with pytest.raises(WorkerTimeoutError, match=r"within 0\.2 s while talking"):
        child.receive(0.2, "while talking")


# ---------------------------------------------------------------------- ending


def test_end_is_idempotent_and_use_after_it_is_refused(start: Start) -> None:
    child = ready(start(targets.echo))
    child.send_bytes(b"leave")
    for _ in range(3):
        child.end()
    assert child.ended
    assert not child.alive
    assert not process_runs(child.pid)
    for use in (lambda: child.send_bytes(b""), lambda: child.receive(1, ""), child.poll):
        with pytest.raises(ClosedError, match="cage 3: used after it was closed"):
            use()
    child.kill()


def test_child_that_left_by_itself_can_be_ended(start: Start) -> None:
    child = start(targets.say)
    until(lambda: not process_runs(child.pid))
    child.end()
    assert child.ended


def test_child_that_ignores_sigterm_ends(start: Start) -> None:
    child = ready(start(targets.ignore_sigterm))
    os.kill(child.pid, signal.SIGTERM)
    child.end(grace_s=0.05)
    assert not process_runs(child.pid)


def test_forgotten_child_is_ended() -> None:
    child = ready(Child(targets.be_busy, start_method="fork"))
    pid = child.pid
    del child
    gc.collect()
    until(lambda: not process_runs(pid))


def test_interrupt_while_ending_still_ends_the_child(start_fork: Start) -> None:
    child = ready(start_fork(targets.interrupt_parent))

    def end() -> None:
        child.send_bytes(b"interrupt me while I wait for your end")
        child.end(grace_s=LONG_S)

    with pytest.raises(KeyboardInterrupt):
        end()
    assert child.ended
    assert not process_runs(child.pid)


def test_forked_copy_does_not_end_the_child_of_its_parent(start_fork: Start) -> None:
    child = ready(start_fork(targets.echo))

    def end_copy(connection: Any, *, inherited: Child) -> None:
        inherited.end()
        connection.send_bytes(b"ended")

    copied = start_fork(end_copy, inherited=child)
    assert copied.receive(LONG_S, "ending") == b"ended"
    child.send_bytes(b"x")
    assert child.receive(LONG_S, "echoing") == b"x"


def test_many_starts_and_kills_keep_the_descriptors() -> None:
    def cycle() -> None:
        child = Child(targets.be_busy, start_method="fork")
        child.kill()

    cycle()
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(40):
        cycle()
    gc.collect()
    assert sorted(os.listdir("/proc/self/fd")) == before


# ---------------------------------------------------------------------- arguments


def test_unknown_start_method_is_refused() -> None:
    with pytest.raises(ValueError, match=r"start_method: expected one of \[.*\], got 'thread'"):
        Child(targets.echo, start_method="thread")


def test_default_start_method_does_not_fork_this_process() -> None:
    assert default_start_method() == "forkserver"
    assert check_start_method(None) == "forkserver"
    assert [check_start_method(method) for method in METHODS] == METHODS


def test_descriptors_are_not_sent_to_a_child_that_does_not_read(start_fork: Start) -> None:
    child = ready(start_fork(targets.echo))
    os.kill(child.pid, signal.SIGSTOP)
    pipe = child.connection.fileno()
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(4096))
    os.set_blocking(pipe, True)
    sent: list[int] = []
    with pytest.raises(WorkerTimeoutError, match=r"did not accept a request within 0\.1 s"):
        child.send_handles([lambda: sent.append(1)], 0.1)
    assert not sent
