"""What a child has started ends with it, in whatever session or group it is."""

from __future__ import annotations

import os
import signal

import child_targets as targets
import pytest
from starting import LONG_S, Start
from waiting import until

from parllel.system.processes import watched_process
from parllel.system.processes.process_table import (
    ProcessEntry,
    descendants,
    process_entry,
    process_runs,
)


def test_end_takes_sessions_along(start: Start) -> None:
    child = start(targets.start_sessions, 2)
    grandchildren = [int(pid) for pid in child.receive(LONG_S, "starting").split(b",")]
    assert all(process_runs(pid) for pid in grandchildren)
    child.end(grace_s=0.0)
    until(lambda: not any(process_runs(pid) for pid in grandchildren))


def test_a_child_that_leaves_takes_sessions_along(start: Start) -> None:
    child = start(targets.start_sessions, 1)
    grandchild = int(child.receive(LONG_S, "starting"))
    child.send_bytes(b"leave")
    until(lambda: not process_runs(grandchild))
    until(lambda: not process_runs(child.pid))
    assert child.exit_text() == "exited with code 0"


def test_end_takes_sessions_of_a_child_that_crashed_along(start: Start) -> None:
    child, sibling = start(targets.start_sessions, 1), start(targets.start_sessions, 1)
    grandchild = int(child.receive(LONG_S, "starting"))
    other = int(sibling.receive(LONG_S, "starting"))
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: not process_runs(child.pid))
    child.kill()
    until(lambda: not process_runs(grandchild))
    assert process_runs(other)


def test_end_takes_sessions_of_a_child_along_that_crashes_while_they_are_listed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(targets.start_sessions, 1)
    grandchild = int(child.receive(LONG_S, "starting"))

    def killed_before(pid: int) -> list[ProcessEntry]:
        os.kill(pid, signal.SIGKILL)
        until(lambda: not process_runs(pid))
        return descendants(pid)

    monkeypatch.setattr(watched_process, "descendants", killed_before)
    child.kill()
    until(lambda: not process_runs(grandchild))


def test_grandchildren_do_not_stay_as_zombies(start: Start) -> None:
    """Here orphans become children of this process, as they do of process 1 of a container."""
    for target in (targets.start_programs, targets.start_sessions):
        child = start(target, 2)
        grandchildren = [int(pid) for pid in child.receive(LONG_S, "starting").split(b",")]
        child.end(grace_s=0.0)
        until(lambda pids=grandchildren: not any(map(process_entry, pids)))  # type: ignore[misc]
