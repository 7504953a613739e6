"""What an agent that means harm can do to the processes and files beside it, by each means of confinement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import hostile_agent
import pytest
from agent_setup import file_agent

from parllel.distributed.remote import agent_settings
from parllel.system.processes.process_table import process_runs

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="confined by means of Linux"
)
GOOD = {"step": 1, "remainingOverageTime": 60}
SECRET = "a-secret-of-this-test-" + "4" * 20

HOSTILE = Path(hostile_agent.__file__).read_text()
MEANS = {
    "all": (True, 99),
    "namespaces": (True, 0),
    "landlock": (False, 99),
}


@pytest.fixture(params=list(MEANS))
def means(request, monkeypatch):
    """Confine agents by some of what this machine offers."""
    found, problem = agent_settings.available()
    namespaces, landlock = MEANS[request.param]
    if namespaces > found.namespaces or (landlock and not found.landlock):
        pytest.skip(f"this machine offers no {request.param}")
    only = agent_settings.Confinement(namespaces, min(landlock, found.landlock))
    monkeypatch.setattr(agent_settings, "_found", (only, problem))
    return request.param


@pytest.fixture
def beside():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def ask(tmp_path, beside, monkeypatch):
    """Return what the hostile agent achieves; the server that it is against is this process."""
    monkeypatch.setenv("SECRET_OF_SERVER", SECRET)

    def asked(do, **more):
        (tmp_path / "agent").mkdir()
        with file_agent(tmp_path / "agent", HOSTILE, writable=()) as agent:
            # Backwards, so that the message itself does not hold it.
            given = {"server": os.getpid(), "beside": beside.pid, "secret": SECRET[::-1], **more}
            answer, log = agent.act({**GOOD, "do": do, **given})
            assert isinstance(answer, list), (answer, log)
            return answer

    return asked


def test_it_reaches_no_other_process_by_signals(means, ask, beside):
    if means == "landlock" and agent_settings.available()[0].landlock < 6:
        pytest.skip("this version of Landlock does not restrict signals")
    assert ask("signals") == []
    assert beside.poll() is None
    assert process_runs(os.getpid())


def test_it_changes_no_limits_of_other_processes(means, ask):
    if means == "landlock":
        pytest.skip("Landlock does not restrict this")
    assert ask("limits") == []


@pytest.mark.parametrize("what", ["attach", "read", "memory"])
def test_it_sees_no_memory_and_no_variable_of_other_processes(means, ask, what):
    assert ask(what) == []


def test_it_has_no_privileges(means, ask):
    assert ask("privileges") == ["0" * 16, "0" * 16, "1"]


def test_it_writes_nothing_outside_of_its_folders(means, ask, tmp_path, monkeypatch):
    if means == "namespaces":
        pytest.skip("Landlock restricts this")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    inside = [str(tmp_path / "agent" / "mine"), str(tmp_path / "temporary" / "mine"), "/dev/null"]
    outside = tmp_path / "outside"
    assert ask("write", paths=[*inside, str(outside)]) == inside
    assert not outside.exists()


@pytest.mark.parametrize("what", ["limits", "attach", "read", "memory"])
@pytest.mark.few(1)
def test_a_program_that_is_not_confined_achieves_all_of_it(tmp_path, beside, monkeypatch, what):
    # Else the tests above could pass with an agent that looks in the wrong places.
    path = tmp_path / "agent.py"
    path.write_text(HOSTILE)
    program = (
        "import json, sys, types; from agent import agent; "
        "print(json.dumps(agent(types.SimpleNamespace(**json.loads(sys.argv[1])))))"
    )
    monkeypatch.setenv("SECRET_OF_SERVER", SECRET)
    secret = {"server": os.getpid(), "beside": beside.pid, "secret": SECRET[::-1], "do": what}
    ran = subprocess.run(
        [sys.executable, "-c", program, json.dumps(secret)],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
        text=True,
    )
    found = json.loads(ran.stdout)
    if what in ("limits", "attach"):
        assert beside.pid in found
    else:
        # The variables as they were when this process started are elsewhere.
        assert found or what == "read"
