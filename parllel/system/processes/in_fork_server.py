"""Make the fork server, on import, end what its children leave behind once the parent is gone.

    parent   holds the "alive" pipe; the kernel closes it, however the parent ends
    server   sees the pipe hang up, and exits; its exit function kills its descendants
    worker   killed with the parent; its own children become the server's, in whatever session they are

The kernel kills a worker and its process group with the parent, but not what runs in a session of its own.
Only the fork server may import this module. It takes effect on import because multiprocessing's server can
be asked to import modules, and to do nothing else. For the same reason the collector, which is off from here
on, is turned on by `frozen_imports`, the last module that the server imports.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
import warnings

from parllel.system.processes.orphans import adopt_orphans, kill_own_descendants

_PATIENCE_S = 5.0
_ORPHANED_S = 1.0  # the kernel closes the files of a process some instants before it counts as gone


def _end_descendants(server: int, parent: int) -> None:
    # The children are forks of the server and have this exit function too.
    if os.getpid() != server:
        return
    # A server that failed with an exception may have a parent that lives, and still uses its workers. Or the
    # parent was killed halfway through a request, which is an exception as well.
    if not hasattr(sys, "last_value") or _lost(parent):
        kill_own_descendants(_PATIENCE_S)
        # Registered first, this is the last exit function: what is left is to take all modules apart, for a
        # second and more on a busy machine, while others wait for the end of this process.
        if not hasattr(sys, "last_value"):
            os._exit(0)


def _lost(parent: int) -> bool:
    """Return whether the parent has ended, after waiting for a moment that it does."""
    deadline = time.monotonic() + _ORPHANED_S
    while os.getppid() == parent:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


gc.disable()
if adopt_orphans():
    atexit.register(_end_descendants, os.getpid(), os.getppid())
    # The server also collects the orphans, and would warn of each as a process that it does not know.
    warnings.filterwarnings("ignore", message="forkserver: waitpid returned unexpected pid")
