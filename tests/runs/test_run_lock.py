from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pytest

from parllel.runs import RunFolder, run_lock

HOLD = """
import sys
from parllel.runs import RunFolder
with RunFolder.open(sys.argv[1]).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(print, {"seed": 0})
    return folder


@pytest.fixture
def holder(folder):
    """Return another process that holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_another_process_is_kept_out(folder, holder):
    assert folder.in_use
    message = rf"run: another process \({holder.pid}\) is using this run; wait until it has ended"
    with pytest.raises(RuntimeError, match=message), folder.lock():
        pass
    holder.kill()  # by which the system lets go
    holder.wait()
    assert not folder.in_use
    with folder.lock():
        assert folder.in_use
    assert not folder.in_use


def test_a_folder_is_locked_against_oneself(folder):
    with folder.lock():
        with (
            pytest.raises(RuntimeError, match=rf"\({os.getpid()}\) is using this run"),
            folder.lock(),
        ):
            pass
        assert folder.in_use


@pytest.fixture
def looker(folder):
    """Return a descriptor with the lock of somebody who looks whether it is held, at this moment."""
    (folder.path / "lock").touch()
    handle = os.open(folder.path / "lock", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    yield handle
    os.close(handle)


def test_who_looks_is_no_holder(folder, looker):
    assert not folder.in_use


def test_who_looks_keeps_nobody_out(folder, looker, monkeypatch):
    monkeypatch.setattr(run_lock.time, "sleep", lambda _: fcntl.flock(looker, fcntl.LOCK_UN))
    with folder.lock():
        assert folder.in_use


WITHOUT = """
import importlib, os, sys
from pathlib import Path
from parllel.runs import run_lock
sys.modules["fcntl"] = None
del os.register_at_fork, os.pread, os.pwrite
importlib.reload(run_lock)
path = Path(sys.argv[1], "lock")
with run_lock.hold_lock(path):
    print(path.read_text() == f"{os.getpid()}\\n", run_lock.lock_is_held(path))
"""


def test_a_system_without_locks(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True False\n", done.stderr


FORK = """
import os, sys
from contextlib import ExitStack
from parllel.runs import RunFolder

folder = RunFolder.open(sys.argv[1])
with ExitStack() as stack:
    stack.enter_context(folder.lock())
    read, write = os.pipe()
    ready, say_ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.write(say_ready, b"!")
        os.read(read, 1)  # until the parent is done
        os._exit(0)
    os.close(read)
    os.read(ready, 1)
    assert folder.in_use  # the child has not let go for its parent
    stack.close()
    assert not folder.in_use
    os.close(write)
    os.waitpid(child, 0)
"""


def test_a_forked_child_holds_nothing(folder):
    subprocess.run([sys.executable, "-c", FORK, str(folder.path)], check=True)
