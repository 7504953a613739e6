"""Clean-up in the fork server, on import of this module: it ends its children's leftovers after the parent.

    parent   holds the "alive" pipe, which the kernel closes however the parent ends
    server   sees the pipe hang up, and exits; its exit function kills its descendants
    worker   killed with the parent; its children become the server's, in whatever session they are

The kernel kills a worker and its process group with the parent, but not processes in other sessions. Only the
fork server may import this module. It takes effect on import because the only thing that multiprocessing's
server can be asked to do is to import modules. For the same reason the garbage collector, disabled here, is
enabled by `frozen_imports`, the last module that the server imports.
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
_ORPHANED_S = (
    1.0  # the kernel closes the files of a process shortly before its children are reparented
)


def _end_descendants(server: int, parent: int) -> None:
    # Children are forks of the server, and inherit this exit function.
    if os.getpid() != server:
        return
    # After an exception in the server the parent may still live and use its workers. But the exception may
    # also come from a parent that was killed halfway through a request.
    if not hasattr(sys, "last_value") or _lost(parent):
        kill_own_descendants(_PATIENCE_S)
        # Registered first, so this is the last exit function. Only the teardown of modules is left, which may
        # take more than a second on a busy machine while others wait for the end of this process.
        if not hasattr(sys, "last_value"):
            os._exit(0)


def _lost(parent: int) -> bool:
    """Return whether the parent has ended, waiting up to _ORPHANED_S for it."""
    deadline = time.monotonic() + _ORPHANED_S
    while os.getppid() == parent:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


gc.disable()
if adopt_orphans():
    atexit.register(_end_descendants, os.getpid(), os.getppid())
    # The server also collects adopted orphans, and would warn about each as an unknown process.
    warnings.filterwarnings("ignore", message="forkserver: waitpid returned unexpected pid")
