"""What our fork server imports first: it ends what its children leave, after the parent is gone.

    parent --- "alive" pipe ---> server: ends when the parent does, however it ends
    worker killed: its children become the server's, whatever session or group they are in

The kernel kills a worker and its group with the parent; what is in a session of its own remains for the
server. Nothing else may import this module: to import is all that multiprocessing's server can be asked for.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings

from parllel.processes.orphans import adopt_orphans, kill_own_descendants

_PATIENCE_S = 5.0


def _end_descendants(server: int) -> None:
    # A fork of it has this exit function too. And a server that failed itself has a parent that lives.
    if os.getpid() == server and not hasattr(sys, "last_value"):
        kill_own_descendants(_PATIENCE_S)


if adopt_orphans():
    atexit.register(_end_descendants, os.getpid())
    # It collects them as well, and would say so for each.
    warnings.filterwarnings("ignore", message="forkserver: waitpid returned unexpected pid")
