"""A parent: starts children, says the process ids of the family, and does what it is told.

    parent_script.py METHOD CHILD ENDING

CHILD: "idle", "gil" (hangs in compiled code and holds the interpreter lock), "programs" (has programs of
its own running).  ENDING: "wait" (to be killed), "leave", "raise", "interrupt" (waits for a reply).
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from multiprocessing.connection import Connection

from parllel.processes import Child, forkserver_pid


def serve(connection: Connection, kind: str) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    started = [subprocess.Popen(sleep).pid for _ in range(2)] if kind == "programs" else []
    connection.send_bytes(",".join(map(str, started)).encode())
    if kind == "gil":
        ctypes.PyDLL(None).sleep(60)
    time.sleep(60)


def main(method: str, kind: str, ending: str) -> None:
    children = [Child(serve, (kind,), start_method=method) for _ in range(2)]
    family = [child.pid for child in children]
    for child in children:
        below = child.receive(30, "at start")
        family += map(int, filter(None, below.split(b",")))
    if forkserver_pid() is not None:
        family.append(forkserver_pid())
    print(*family, flush=True)
    if ending == "wait":
        time.sleep(60)
    elif ending == "interrupt":
        children[0].receive(60, "waiting")
    elif ending == "raise":
        raise ValueError("the script fails")


if __name__ == "__main__":
    main(*sys.argv[1:])
