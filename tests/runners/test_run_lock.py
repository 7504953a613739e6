from __future__ import annotations

import os
import subprocess
import sys

import pytest

from parllel.runners import RunFolder

HOLD = """
import sys
from parllel.runners import RunFolder
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


FORK = """
import os, sys
from contextlib import ExitStack
from parllel.runners import RunFolder

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
