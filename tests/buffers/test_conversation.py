"""The contract of a conversation, against real children."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import conversation_children as children
import numpy as np
import pytest
from start_methods import SPAWN_SOAKS
from waiting import until

from parllel.arrays import ManagedMemoryArray, SharedMemoryArray
from parllel.buffers import conversation
from parllel.buffers.conversation import FIRST_WORDS, HEAD, Conversation
from parllel.errors import (
    ClosedError,
    WorkerDiedError,
    WorkerError,
    WorkerTimeoutError,
    WorkerTracebackError,
)
from parllel.system.processes.child import Child
from parllel.system.processes.process_table import process_runs

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
Talk = Callable[..., Conversation]
LONG_S = 30.0


@pytest.fixture
def talk() -> Iterator[Talk]:
    """Start a conversation with a child that has said hello; end it at last."""
    started: list[Conversation] = []

    def start(
        *args: Any,
        target: Any = children.talk,
        method: str = "fork",
        inherited: Any = None,
        **options: Any,
    ) -> Conversation:
        child = Child(target, args, inherited=inherited, name="cage 3", start_method=method)
        options = {"timeout_s": LONG_S, "buffers": inherited, **options}
        started.append(Conversation(child, **options))
        assert started[-1].answer(FIRST_WORDS, "at start", LONG_S) == "hello"
        return started[-1]

    yield start
    for one in started:
        one.close()
        assert not process_runs(one.child.pid)


def assert_broken(broken: Conversation, reason: str) -> None:
    """Check that the child has ended and that later calls say why."""
    assert not process_runs(broken.child.pid)
    with pytest.raises(ClosedError, match=rf"^cage 3: ended after {reason}"):
        broken.check_open()


def interrupted(function: Callable[[], Any]) -> None:
    """Call a function, and press Ctrl-C while it waits for the pipe."""

    def interrupt(_: int, frame: Any) -> None:
        while frame is not None:
            if frame.f_code.co_name in ("await_room", "_await_bytes"):
                raise KeyboardInterrupt("by the alarm")
            frame = frame.f_back

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(KeyboardInterrupt, match="by the alarm"):
            function()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


# ---------------------------------------------------------------------- replies


@pytest.mark.parametrize("method", SPAWN_SOAKS)
def test_values_and_buffers_go_to_the_child_and_back(talk: Talk, method: str) -> None:
    inherited = SharedMemoryArray((2,), np.float32)
    asked = talk(method=method, inherited=inherited)
    managed = ManagedMemoryArray((3,), np.float32)
    assert asked.call("echo", {"a": 1}) == {"a": 1}
    asked.call("write", managed, 2.0)
    asked.call("write_inherited", 3.0)
    assert np.asarray(managed).tolist() == [2.0] * 3
    assert np.asarray(inherited).tolist() == [3.0] * 2
    assert asked.call("echo", managed) is managed


def test_replies_to_interrupted_requests_are_dropped(talk: Talk) -> None:
    asked = talk()
    interrupted(lambda: asked.call("slowly", "late"))
    assert asked.call("echo", "mine") == "mine"
    # Whoever still wants the answer may wait again.
    number = asked.ask("slowly", "wanted")
    interrupted(lambda: asked.answer(number, "waiting"))
    assert asked.answer(number, "waiting") == "wanted"
    assert asked.broken is None


def test_a_request_of_its_own_kind_may_have_several_replies(talk: Talk) -> None:
    asked = talk()
    number = asked.next_number()
    asked.send(HEAD.pack(b"N", number) + b"abc", "before counting")
    replies = [asked.receive(number, "counting") for _ in range(3)]
    assert replies == [HEAD.pack(b"N", number) + part for part in (b"a", b"b", b"c")]


def test_a_reply_that_came_another_way_is_taken_if_it_matches(talk: Talk) -> None:
    asked = talk()
    number = asked.ask("echo", 1)
    mail = asked.receive(number, "echoing")
    assert asked.answer(number, "echoing", mail=mail) == 1
    later = asked.ask("echo", 2)
    assert asked.answer(later, "echoing", mail=mail) == 2


def test_numbers_start_again_below_the_largest(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "_LAST_NUMBER", 4)
    asked = talk()
    assert [asked.call("echo", i) for i in range(9)] == list(range(9))
    assert 1 <= asked.next_number() <= 4


def test_an_error_that_leaves_the_child_well(talk: Talk) -> None:
    asked = talk()
    with pytest.raises(children.GoodError, match="not today") as caught:
        asked.call("refuse", "not today")
    assert isinstance(caught.value.__cause__, WorkerTracebackError)
    assert f"cage 3, process {asked.child.pid}, during refuse" in str(caught.value.__cause__)
    with pytest.raises(TypeError, match="cannot be sent"):
        asked.call("unsendable")
    with pytest.raises(TypeError, match="cannot be sent"):
        asked.call("echo", threading.Lock())
    assert asked.call("echo", 1) == 1


# ---------------------------------------------------------------------- failures


def test_what_a_child_raises_arrives_as_itself_with_what_it_left_behind(talk: Talk) -> None:
    asked = talk()
    with pytest.raises(LookupError, match="nothing there") as caught:
        asked.call("fail", "nothing there")
    cause = caught.value.__cause__
    assert isinstance(cause, WorkerTracebackError)
    assert "raise LookupError(text)" in str(cause)
    assert f"cage 3, process {asked.child.pid}, during fail" in str(cause)
    assert asked.error is caught.value
    assert asked.pending_results == "what was left"
    assert_broken(asked, "LookupError: nothing there")


@pytest.mark.parametrize("size", [1, 10**7])
def test_last_words_come_to_whoever_asks_next(talk: Talk, size: int) -> None:
    asked = talk(target=children.fail_while_idle)
    until(asked.child.died)
    with pytest.raises(LookupError, match="while idle"):
        asked.call("echo", bytes(size))
    assert asked.pending_results == "what was left"
    assert_broken(asked, "LookupError")


def test_last_words_are_heard_once_and_kept(talk: Talk) -> None:
    asked = talk(target=children.fail_while_idle)
    error = asked.failure("during a row")
    assert isinstance(error, LookupError)
    assert asked.failure("during another") is error
    assert_broken(asked, "LookupError")


def test_a_child_that_said_nothing_has_died_or_stopped_answering(talk: Talk) -> None:
    dead, hanging = talk(), talk()
    with pytest.raises(WorkerDiedError, match=r"process \d+ was killed by SIGKILL during die"):
        dead.call("die")
    assert dead.pending_results is None
    assert_broken(dead, "WorkerDiedError")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversation, "LAST_WORDS_S", 0.1)
        error = hanging.failure("during a row")
    assert isinstance(error, WorkerDiedError)
    assert "stopped answering during a row" in str(error)
    assert_broken(hanging, "WorkerDiedError")


@pytest.mark.parametrize("request_bytes", [1, 10**7])
def test_a_stopped_child_is_late_and_ends(talk: Talk, request_bytes: int) -> None:
    asked = talk(timeout_s=0.2)
    os.kill(asked.child.pid, signal.SIGSTOP)
    did = "accept a request" if request_bytes > 1 else "answer"
    with pytest.raises(WorkerTimeoutError, match=rf"^cage 3: .* did not {did} within 0\.2 s"):
        asked.call("echo", bytes(request_bytes))
    assert_broken(asked, "WorkerTimeoutError")


def test_ctrl_c_while_half_a_request_is_sent_ends_the_child(talk: Talk) -> None:
    asked = talk()
    os.kill(asked.child.pid, signal.SIGSTOP)
    interrupted(lambda: asked.call("echo", bytes(10**7)))
    assert_broken(asked, "KeyboardInterrupt")


# ---------------------------------------------------------------------- the end


def close_marked(talk: Talk, folder: Path, closing: str, **options: Any) -> list[str]:
    """Close a child, and return the stages that it has noticed."""
    asked = talk(closing, str(folder), **options)
    asked.begin_close()
    try:
        asked.close()
    finally:
        for _ in range(2):
            asked.begin_close()
            asked.close()
    with pytest.raises(ClosedError, match=r"used after close\(\)"):
        asked.check_open()
    assert not process_runs(asked.child.pid)
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("closing", "stages"),
    [
        ("", ["asked", "left"]),
        ("stay", ["asked", "terminated"]),
        ("ignore SIGTERM", ["asked", "terminated"]),
    ],
)
def test_a_child_is_asked_then_terminated_then_killed(
    talk: Talk, tmp_path: Path, closing: str, stages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if stages[-1] != "left":
        monkeypatch.setattr(conversation, "LEAVE_S", 0.05)
    assert close_marked(talk, tmp_path, closing) == stages


def test_what_closing_raises_comes_once_the_child_has_left(talk: Talk, tmp_path: Path) -> None:
    with pytest.raises(children.GoodError, match="it does not close"):
        close_marked(talk, tmp_path, "raise")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["asked", "left"]


def test_a_child_that_hangs_while_it_closes_is_killed(talk: Talk, tmp_path: Path) -> None:
    with pytest.raises(WorkerTimeoutError, match=r"did not answer within 0\.3 s during close"):
        close_marked(talk, tmp_path, "hang", timeout_s=0.3)
    assert [path.name for path in tmp_path.iterdir()] == ["asked"]


def test_a_child_that_was_not_asked_is_killed(talk: Talk, tmp_path: Path) -> None:
    asked = talk("", str(tmp_path))
    asked.ask("hang")
    asked.close()
    assert not process_runs(asked.child.pid)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_child_that_dies_while_it_closes(talk: Talk, when: str) -> None:
    for forgive in (False, True):
        asked = talk("hang")
        if when == "after":
            asked.begin_close()
        os.kill(asked.child.pid, signal.SIGKILL)
        until(asked.child.died)
        asked.begin_close()
        if forgive:
            asked.close(forgive=True)
            continue
        with pytest.raises(WorkerDiedError, match="was killed by SIGKILL during close"):
            asked.close()


def test_what_closing_raises_is_not_forgiven(talk: Talk) -> None:
    asked = talk("raise")
    asked.begin_close()
    with pytest.raises(children.GoodError, match="it does not close"):
        asked.close(forgive=True)


def test_closing_after_a_failure_is_quiet(talk: Talk) -> None:
    asked = talk()
    with pytest.raises(WorkerError, match="SIGKILL"):
        asked.call("die")
    asked.begin_close()
    asked.close()
    assert asked.error is None
    with pytest.raises(ClosedError, match=r"used after close\(\)"):
        asked.check_open()
