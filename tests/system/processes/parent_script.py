"""A parent: starts children, says the process ids of the family, and does what it is told.

    parent_script.py METHOD CHILD ENDING

CHILD: "idle", "gil" (hangs in compiled code and holds the interpreter lock), "programs" (has programs of
its own running), "asked" (the same, and it waits for requests; all on one core), "sessions" (the same, and
the programs have sessions of their own).  ENDING: "wait" (to be killed), "leave", "raise", "interrupt" (waits
for a reply).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from multiprocessing.connection import Connection

from parllel.system.processes.child import Child
from parllel.system.processes.fork_server import forkserver_pid


def serve(connection: Connection, kind: str) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    started = []
    if kind in ("programs", "asked", "sessions"):
        own = kind == "sessions"
        started = [subprocess.Popen(sleep, start_new_session=own).pid for _ in range(2)]
    connection.send_bytes(",".join(map(str, started)).encode())
    if kind == "gil":
        ctypes.PyDLL(None).sleep(60)
    if kind in ("asked", "sessions"):
        with contextlib.suppress(EOFError):
            connection.recv_bytes()
        return
    time.sleep(60)


def wait_for_a_signal() -> None:
    # In short parts: Python starts a sleep although a signal has just arrived, and looks at it afterwards.
    for _ in range(600):
        time.sleep(0.1)


def main(method: str, kind: str, ending: str) -> None:
    if kind == "asked":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    children = [Child(serve, (kind,), start_method=method) for _ in range(2)]
    family = [child.pid for child in children]
    for child in children:
        below = child.receive(30, "at start")
        family += map(int, filter(None, below.split(b",")))
    if forkserver_pid() is not None:
        family.append(forkserver_pid())
    print(*family, flush=True)
    if ending == "wait":
        wait_for_a_signal()
    elif ending == "interrupt":
        children[0].receive(60, "waiting")
    elif ending == "raise":
        raise ValueError("the script fails")


if __name__ == "__main__":
    main(*sys.argv[1:])
