"""What is found below a process while it changes."""

from __future__ import annotations

import sys

import pytest
from python_code import output_of

# In a process of its own, which adopts what the shell leaves behind: a sleep in a session of its own. The
# shell is killed when it has been listed and is to be looked at, as the kernel kills workers with the parent.
KILLED_AS_IT_IS_LOOKED_AT = """
import os, signal, subprocess
from parllel.system.processes import orphans, process_table
from parllel.system.processes.process_table import descendants

assert orphans.adopt_orphans()
shell = subprocess.Popen(["sh", "-c", "setsid sleep 60 & echo $!; wait"], stdout=subprocess.PIPE)
sleep = int(shell.stdout.readline())
look = process_table.process_entry

def kill_and_look(pid):
    if pid == shell.pid:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if {collected}:
            shell.wait()
    return look(pid)

process_table.process_entry = kill_and_look
if {lists}:
    assert process_table._lists_children()
else:
    process_table._lists_children = lambda: False
try:
    assert sleep in [entry.pid for entry in descendants(os.getpid())]
finally:
    os.kill(sleep, signal.SIGKILL)
    os.waitpid(sleep, 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="adopts orphans and reads /proc")
@pytest.mark.parametrize("lists", [True, False], ids=["children", "all processes"])
@pytest.mark.parametrize("collected", [True, False], ids=["collected", "zombie"])
def test_children_of_one_that_ends_meanwhile_are_found(lists: bool, collected: bool) -> None:
    code = KILLED_AS_IT_IS_LOOKED_AT.format(lists=lists, collected=collected)
    output_of(code)  # fails if the code does
