"""Exceptions of a child arrive as themselves, or named."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import child_targets as targets
import pytest
from starting import LONG_S, Start

from parllel.errors import WorkerError, WorkerTracebackError, notes_of
from parllel.system.processes.exceptions import pack_exception
from parllel.system.processes.process_table import descendants

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong size 3"),
        KeyError("reward"),
        FileNotFoundError(2, "No such file", "model.xml"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exception_arrives_as_itself_with_the_traceback(
    start_sent: Start, error: Exception
) -> None:
    child = start_sent(targets.fail_deep_inside, error)
    with pytest.raises(type(error)) as caught:
        child.receive(LONG_S, "during step 7")
    assert type(caught.value) is type(error)
    assert caught.value.args == error.args
    assert str(caught.value) == str(error)
    cause = caught.value.__cause__
    assert isinstance(cause, WorkerTracebackError)
    assert "innermost_frame" in str(cause)
    assert str(cause).startswith(f"cage 3, process {child.pid}, during step 7; traceback of")
    assert type(error).__name__ in str(cause)


def test_chain_of_exceptions_is_in_the_traceback(start_fork: Start) -> None:
    child = start_fork(targets.fail_with_cause)
    with pytest.raises(ValueError, match="the second trouble") as caught:
        child.receive(LONG_S, "failing")
    assert "KeyError: 'the first trouble'" in str(caught.value.__cause__)


def test_exception_with_kept_arguments_is_rebuilt(start_sent: Start) -> None:
    child = start_sent(targets.fail_with, "KeepsArgumentsError")
    with pytest.raises(targets.KeepsArgumentsError, match="3, 4") as caught:
        child.receive(LONG_S, "failing")
    assert caught.value.total == 7


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SeveralArgumentsError", "3 and 4"),
        ("HoldsFrameError", "a frame inside"),
        ("UnspeakableError", r"\(no text: RuntimeError\)"),
    ],
)
def test_exception_that_cannot_travel_is_named(start_sent: Start, name: str, text: str) -> None:
    child = start_sent(targets.fail_with, name)
    with pytest.raises(WorkerError, match=rf"child_targets\.{name}: {text}") as caught:
        child.receive(LONG_S, "failing")
    assert type(caught.value) is WorkerError
    assert "in fail_with" in str(caught.value.__cause__)


def test_exception_whose_class_the_parent_lacks_is_named(start_sent: Start, tmp_path: Path) -> None:
    (tmp_path / "only_in_the_child.py").write_text("class ForeignError(Exception): pass\n")
    child = start_sent(targets.fail_with_class_of_folder, str(tmp_path))
    with pytest.raises(WorkerError, match=r"only_in_the_child\.ForeignError: from far") as caught:
        child.receive(LONG_S, "failing")
    assert "ForeignError: from far away" in str(caught.value.__cause__)


def test_exception_class_of_a_closure_is_the_same_class(start_sent: Start) -> None:
    class LocalError(Exception):
        pass

    def fail(connection: Any) -> None:
        raise LocalError("mine")

    with pytest.raises(LocalError, match="mine"):
        start_sent(fail).receive(LONG_S, "failing")


def test_exception_whose_constructor_words_the_text_says_it_once(start_sent: Start) -> None:
    class CodeError(Exception):
        def __init__(self, code: Any) -> None:
            super().__init__(f"failed with code {code}")
            self.code = code

    def fail(connection: Any) -> None:
        raise CodeError(5)

    with pytest.raises(CodeError, match="failed with code 5") as caught:
        start_sent(fail).receive(LONG_S, "failing")
    assert str(caught.value) == "failed with code 5"
    assert caught.value.code == 5


def test_exception_that_leaves_its_arguments_behind_arrives_as_itself(start_sent: Start) -> None:
    class QuietError(Exception):
        def __reduce__(self) -> Any:
            return QuietError, ()

        def __str__(self) -> str:
            return "not a word of the lock"

    def fail(connection: Any) -> None:
        raise QuietError(threading.Lock())

    with pytest.raises(QuietError, match="not a word") as caught:
        start_sent(fail).receive(LONG_S, "failing")
    assert caught.value.args == ()


class CannotLoad:
    def __call__(self, connection: Any) -> None:
        raise AssertionError("never called")

    def __reduce__(self) -> Any:
        return targets.fail_to_load, ()


def test_target_that_cannot_be_loaded_is_an_error_of_the_child(start_sent: Start) -> None:
    child = start_sent(CannotLoad())
    with pytest.raises(LookupError, match="nobody knows me here"):
        child.receive(LONG_S, "at start")


def test_target_that_cannot_be_pickled_is_refused_before_the_start(start_sent: Start) -> None:
    before = {entry.identity for entry in descendants(os.getpid())}
    with pytest.raises(TypeError, match="cannot pickle 'frame' object"):
        start_sent(targets.say, targets.HoldsFrameError("").lock)
    assert {entry.identity for entry in descendants(os.getpid())} == before


@pytest.mark.parametrize(
    ("kind", "expected", "text"),
    [
        ("text", ValueError, r"(?ms)\Abeginx+\n\.\.\. \d+ characters are left out \.\.\.\nx+end$"),
        (
            "text among others",
            FileNotFoundError,
            r"(?s)beginx+\n\.\.\..*left out.*xend: 'model.xml'",
        ),
        ("array", KeyError, r"the array.*array\(\[0"),
        ("attribute", targets.HoldsMuchError, "small"),
        ("note", LookupError, "noted"),
        ("cause", ValueError, "follows"),
    ],
)
def test_what_is_too_long_is_cut(
    start_fork: Start, kind: str, expected: type[Exception], text: str
) -> None:
    child = start_fork(targets.fail_with_megabytes, kind)
    with pytest.raises(expected, match=text) as caught:
        child.receive(LONG_S, "failing")
    assert len(str(caught.value)) < 2**16
    assert 100 < len(str(caught.value.__cause__)) < 2**16 + 200
    assert "fail_with_megabytes" in str(caught.value.__cause__)
    assert sum(map(len, notes_of(caught.value))) < 2**13
    assert kind != "attribute" or caught.value.code == 7  # type: ignore[attr-defined]


def test_a_text_that_is_not_too_long_is_whole(start_fork: Start) -> None:
    error = ValueError("\N{SNOWMAN}" * 20_000)
    with pytest.raises(ValueError, match="\N{SNOWMAN}") as caught:
        start_fork(targets.fail_deep_inside, error).receive(LONG_S, "failing")
    assert str(caught.value) == str(error)


def test_a_deep_recursion_says_where_it_began_and_ended(start_fork: Start) -> None:
    with pytest.raises(RecursionError, match="maximum recursion depth") as caught:
        start_fork(targets.recurse).receive(LONG_S, "failing")
    said = str(caught.value.__cause__)
    assert 20_000 < len(said) < 2**16 + 200
    assert "in recurse" in said
    assert said.rstrip().endswith("maximum recursion depth exceeded")


def test_a_child_that_fails_need_not_wait_for_a_reader() -> None:
    """It would never end where the parent waits for something else."""
    long = OSError(2, "\N{SNOWMAN}" * 10**6, "x" * 10**6)
    mine, theirs = multiprocessing.Pipe(duplex=True)
    with mine, theirs:
        os.set_blocking(theirs.fileno(), False)  # so that a write for which there is no room fails
        theirs.send_bytes(pack_exception(long))


def test_a_chain_that_is_too_long_to_be_formatted(start_fork: Start) -> None:
    def fail(connection: Any) -> None:
        error: BaseException = ValueError("the first")
        for _ in range(5000):
            error, last = ValueError("the last"), error
            error.__context__ = last
        raise error

    with pytest.raises(ValueError, match="the last") as caught:
        start_fork(fail).receive(LONG_S, "failing")
    assert "the last" in str(caught.value.__cause__)
