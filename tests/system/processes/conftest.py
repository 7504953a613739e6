from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from start_methods import METHODS, SPAWN_SOAKS
from starting import Run, Start

from parllel.system.processes import Program, program_start, watched_process
from parllel.system.processes.child import Child


@pytest.fixture(params=METHODS)
def start_any(request: pytest.FixtureRequest) -> Iterator[Start]:
    """A function that starts a child under each start method; ends them all."""
    yield from starter(request.param)


@pytest.fixture(params=SPAWN_SOAKS)
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """The same where it matters only who the parent is, which is the same for fork and spawn."""
    yield from starter(request.param)


@pytest.fixture
def start_sent() -> Iterator[Start]:
    """The same where it matters only that the child gets pickles, not copies."""
    yield from starter("forkserver")


@pytest.fixture
def start_fork() -> Iterator[Start]:
    """The same under the cheapest one, where the method cannot matter."""
    yield from starter("fork")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what answers no more for stopped after a moment: it will not end, so waiting shows nothing."""
    monkeypatch.setattr(watched_process, "_LAST_WORDS_S", 0.2)


def starter(method: str) -> Iterator[Start]:
    started: list[Child] = []

    def start(target: Callable[..., None], *args: Any, **kwargs: Any) -> Child:
        child = Child(target, args, name="cage 3", start_method=method, **kwargs)
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()


@pytest.fixture
def run() -> Iterator[Run]:
    """A function that starts a script of the shell; ends them all."""
    started: list[Program] = []

    def run_script(script: str, **options: object) -> Program:
        options = {"name": "the script", **options}
        program = Program(["sh", "-c", script], **options)  # type: ignore[arg-type]
        started.append(program)
        return program

    yield run_script
    for program in started:
        program.kill()


@pytest.fixture(params=["fork server", "subprocess"])
def run_either_way(
    run: Run, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """The same by the fork server, and as on systems that have neither that nor pidfds."""
    if request.param == "subprocess":
        monkeypatch.setattr(program_start, "_has_guards", lambda: False)
        monkeypatch.setattr(watched_process, "_open_pidfd", lambda pid: -1)
    return run
