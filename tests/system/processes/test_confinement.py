"""Children that are confined end as others do, and know nothing that they were not given."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from starting import ending
from waiting import until

from parllel.errors import WorkerDiedError
from parllel.system.processes.child import Child
from parllel.system.processes.confinement import Confinement
from parllel.system.processes.fork_server import forkserver_pid
from parllel.system.processes.orphans import environment_mark
from parllel.system.processes.process_table import descendants, process_runs

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="confined by means of Linux"
)
T = 30.0


def numbers(connection):
    connection.send_bytes(f"{os.getpid()} {os.getppid()}".encode())
    connection.recv_bytes()


def end_by(connection, how):
    if how < 0:
        os.kill(os.getpid(), -how)
    os._exit(how)


def names(connection):
    connection.send_bytes("\n".join(os.environ).encode())


@pytest.fixture(scope="module")
def namespaces():
    try:
        with_namespaces = Child(numbers, confinement=Confinement(namespaces=True))
        with_namespaces.receive(T, "at its start")
    except (OSError, WorkerDiedError) as error:
        pytest.skip(f"this machine offers no namespaces: {error}")
    with_namespaces.kill()
    return Confinement(namespaces=True)


def test_a_child_in_namespaces_sees_itself_and_process_1_only(namespaces):
    with ending(Child(numbers, confinement=namespaces)) as child:
        assert child.receive(T, "at its start") == b"2 0"


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (0, "exited with code 0"),
        (7, "exited with code 7"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        (-signal.SIGKILL, "was killed by SIGKILL"),
        (-signal.SIGTERM, "was killed by SIGTERM"),
    ],
)
def test_its_end_is_seen_as_it_was(namespaces, how, text):
    with (
        ending(Child(end_by, (how,), confinement=namespaces)) as child,
        pytest.raises(WorkerDiedError, match=text),
    ):
        child.receive(T, "at its end")


@pytest.mark.parametrize("which", ["the stand-in", "all of them"])
def test_nothing_is_left_of_one_that_is_killed(namespaces, which):
    child = Child(numbers, confinement=namespaces)
    child.receive(T, "at its start")
    below = descendants(child.pid)
    assert len(below) == 2
    if which == "the stand-in":
        os.kill(child.pid, signal.SIGKILL)
    child.kill()
    # They were killed; on a busy machine it takes a moment to be gone.
    until(lambda: not any(process_runs(entry.pid) for entry in below))


def test_the_fork_server_has_no_other_variable(monkeypatch):
    monkeypatch.setenv("A_KEY_OF_THIS_TEST", "secret")
    with ending(Child(numbers)) as child:
        child.receive(T, "at its start")
        names_of = {
            line.partition(b"=")[0]
            for line in Path(f"/proc/{forkserver_pid()}/environ").read_bytes().split(b"\0")
        }
        assert b"PATH" in names_of
        assert {name for name in names_of if b"TOKEN" in name or b"KEY" in name} == set()


def test_a_child_has_the_variables_that_it_is_given(monkeypatch):
    monkeypatch.setenv("A_KEY_OF_THIS_TEST", "secret")
    for given, has in ((None, True), ({"OTHER": "1"}, False)):
        with ending(Child(names, environment=given)) as child:
            found = child.receive(T, "at its start").decode().split("\n")
        assert ("A_KEY_OF_THIS_TEST" in found) == has
        assert ("OTHER" in found) != has
        assert set(environment_mark("")) <= set(found)


def test_a_child_that_cannot_be_confined_executes_nothing():
    with (
        ending(Child(numbers, confinement=Confinement(landlock=1, writable=("x" * 300,)))) as child,
        pytest.raises(WorkerDiedError, match="exited with code 78"),
    ):
        child.receive(T, "at its start")


def test_a_probe_receives_the_refusal_and_nothing_is_printed(capfd):
    probe = Confinement(landlock=1, writable=("x" * 300,), probing=True)
    with ending(Child(numbers, confinement=probe)) as child, pytest.raises(OSError, match="xxx"):
        child.receive(T, "at its start")
    assert capfd.readouterr() == ("", "")
