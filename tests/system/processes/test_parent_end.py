"""No process survives its parent, however the parent ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from start_methods import METHODS, SPAWN_SOAKS
from waiting import until

from parllel.system.processes.process_table import process_runs

SCRIPT = Path(__file__).parent / "parent_script.py"
KINDS = ["idle", "gil", "programs", "asked"]


class Parent:
    """A run of the script in a session of its own, so that signals to its group hit it alone."""

    def __init__(self, method: str, kind: str, ending: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), method, kind, ending],
            env={**os.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.family = [int(pid) for pid in self.process.stdout.readline().split()]
        members = (2 if kind in ("idle", "gil") else 6) + (method == "forkserver")
        assert len(self.family) == members, self.rest()

    def rest(self) -> str:
        """Wait for the end of the script and return what it wrote to stderr."""
        try:
            return self.process.communicate(timeout=30)[1].decode()
        except subprocess.TimeoutExpired as error:
            left = [pid for pid in (self.process.pid, *self.family) if process_runs(pid)]
            raise AssertionError(
                f"{left} of {self.process.pid}, {self.family} run; it wrote {error.stderr!r}"
            ) from None

    def clean_up(self) -> None:
        for pid in [*self.family, self.process.pid]:
            if process_runs(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate(timeout=30)


@pytest.fixture
def parents() -> Iterator[list[Parent]]:
    started: list[Parent] = []
    yield started
    for parent in started:
        parent.clean_up()


def assert_gone(pids: list[int]) -> None:
    until(lambda: not any(map(process_runs, pids)))  # half the time for which they sleep


@pytest.mark.parametrize("method", METHODS)
def test_family_of_a_killed_parent_is_gone(method: str, parents: list[Parent]) -> None:
    for kind in KINDS:  # at once: starting them takes longer than all else
        parents.append(Parent(method, kind, "wait"))
    for parent in parents:
        assert all(process_runs(pid) for pid in parent.family)
        parent.process.kill()
    assert_gone([pid for parent in parents for pid in parent.family])


def test_killed_parent_leaves_no_sessions_and_no_files(
    parents: list[Parent], tmp_path: Path
) -> None:
    """What has a session of its own is the fork server's to end, and its socket has no name to leave."""
    parents.append(Parent("forkserver", "sessions", "wait", TMPDIR=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []
    parents[0].process.kill()
    assert_gone(parents[0].family)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", SPAWN_SOAKS)
def test_sigterm_to_the_parent_ends_the_family(method: str, parents: list[Parent]) -> None:
    parents.append(Parent(method, "programs", "wait"))
    parents[0].process.terminate()
    assert parents[0].process.wait(30) == -signal.SIGTERM
    assert_gone(parents[0].family)


@pytest.mark.parametrize("method", SPAWN_SOAKS)
@pytest.mark.parametrize("ending", ["wait", "interrupt"])
def test_ctrl_c_ends_the_family(method: str, ending: str, parents: list[Parent]) -> None:
    parents.append(Parent(method, "programs", ending))
    os.killpg(parents[0].process.pid, signal.SIGINT)
    errors = parents[0].rest()
    # The children do not hear of it: one traceback, that of the parent.
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert parents[0].process.returncode == -signal.SIGINT
    assert_gone(parents[0].family)


@pytest.mark.parametrize("method", SPAWN_SOAKS)
@pytest.mark.parametrize("ending", ["leave", "raise"])
def test_parent_that_closes_nothing_leaves_nothing(
    method: str, ending: str, parents: list[Parent]
) -> None:
    """Its children would sleep for a minute: what is waited for here is the end of the parent."""
    parents.append(Parent(method, "gil", ending))
    errors = parents[0].rest()
    assert parents[0].process.returncode == (1 if ending == "raise" else 0)
    assert ("ValueError: the script fails" in errors) == (ending == "raise")
    if ending == "leave":
        assert errors == ""
    assert_gone(parents[0].family)
