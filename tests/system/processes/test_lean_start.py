"""What a child starts with: little of the parent, and all that it was given."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import child_targets as targets
import pytest
from start_methods import METHODS, SENT_SPAWN_SOAKS, SPAWN_SOAKS

from parllel.system.processes.child import Child
from parllel.system.processes.fork_server import forkserver_pid

LONG_S = 30.0

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

TRAINING_SCRIPT = """
    import json, sys
    import torch
    from parllel.system.processes.child import Child

    print("the main module runs", file=sys.stderr)

    class Factory:
        def __init__(self, number):
            self.number = number

        def make(self):
            return self.number + offset

    class HomeError(Exception):
        pass

    offset = 100
    script = __file__

    def serve(connection, factory, double):
        import sys
        modules = list(sys.modules.values())
        of_script = any(getattr(module, "__file__", None) == script for module in modules)
        told = ["torch" in sys.modules, of_script, double(factory.make())]
        connection.send_bytes(json.dumps(told).encode())
        raise HomeError("from the child")

    if __name__ == "__main__":
        for method in sys.argv[1:]:
            child = Child(serve, (Factory(1), lambda n: 2 * n), start_method=method)
            print(child.receive(60, "at start").decode())
            try:
                child.receive(60, "failing")
            except HomeError as error:
                print(json.dumps(str(error)))
            child.end()
"""


def test_script_that_imports_torch_has_children_without_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINING_SCRIPT))
    run = subprocess.run(
        [sys.executable, str(script), "spawn", "forkserver", "fork"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines() == ["the main module runs"]
    spawned, error, forkserved, error_2, forked, error_3 = map(json.loads, run.stdout.splitlines())
    assert spawned == forkserved == [False, False, 202]
    assert forked == [True, True, 202]  # a copy of its parent: the probe works
    assert {error, error_2, error_3} == {"from the child"}


@pytest.mark.parametrize("method", METHODS)
def test_child_has_one_thread_for_blas_and_todays_environment(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    for value in ("first", "second"):  # the fork server is as old as the first
        monkeypatch.setenv("PARLLEL_TEST", value)
        child = Child(targets.tell_environment, start_method=method)
        assert child.receive(LONG_S, "telling") == f"1,1,1,{value}".encode()
        child.end()
    assert os.environ["OMP_NUM_THREADS"] == "8"
    assert "MKL_NUM_THREADS" not in os.environ


@pytest.mark.parametrize("method", SPAWN_SOAKS)
def test_siblings_run_at_once(method: str) -> None:
    """Each waits for a word of the other, so starting one after the other's end would hang."""
    first, second = mp.Pipe()
    children = [
        Child(targets.meet_sibling, inherited=pipe, start_method=method, name=name)
        for name, pipe in (("first", first), ("second", second))
    ]
    answers = [child.receive(LONG_S, "meeting") for child in children]
    assert answers == [b"here", b"here"]
    for child in children:
        child.end()
    first.close()
    second.close()


def test_start_leaves_multiprocessing_as_it_was() -> None:
    from multiprocessing import forkserver, spawn

    functions = spawn.get_preparation_data, forkserver.connect_to_new_process
    for method in METHODS:
        Child(targets.say, start_method=method).end()
    assert (spawn.get_preparation_data, forkserver.connect_to_new_process) == functions


def test_fork_server_is_ours_and_serves_all() -> None:
    from multiprocessing import forkserver

    parents = []
    for _ in range(2):
        child = Child(targets.tell_parent, start_method="forkserver")
        parents.append(int(child.receive(LONG_S, "telling")))
        child.end()
    assert parents == [forkserver_pid()] * 2
    assert forkserver._forkserver._forkserver_pid not in parents  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", SPAWN_SOAKS)
def test_child_can_have_children_of_its_own(method: str) -> None:
    child = Child(targets.start_echo_below, (method,), start_method=method)
    assert child.receive(LONG_S, "starting") == b"hello from below"
    child.end()


@pytest.mark.parametrize("method", SENT_SPAWN_SOAKS)
def test_failed_start_leaves_nothing_open(method: str) -> None:
    class NotAtStart:
        def __reduce__(self) -> None:
            raise RuntimeError("not even at a start")

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError, match="not even at a start"):
        Child(targets.echo_inherited, (b"",), inherited=NotAtStart(), start_method=method)
    assert len(os.listdir("/proc/self/fd")) == before
