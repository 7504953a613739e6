"""Ends an actor together with its parent, the raylet of its node.

    raylet (parent)  --- ends --->  getppid changes  <--- polled by --- watch thread  ---> ends this process

Every actor of this package calls it first.
"""

from __future__ import annotations

import os
import threading
import time

# Polling interval, and so the longest time that an actor outlives its raylet.
_EVERY_S = 1.0


def end_with_raylet() -> None:
    """Start a thread that ends this process once its parent has ended.

    Ray's own processes only check whether their parent is process 1. If orphans get another parent,
    such as systemd in a user's session, the actors of a killed run and their environments would
    keep running.
    """
    parent = os.getppid()
    threading.Thread(target=_watch, args=(parent,), name="raylet watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY_S)
    # Without clean-up, as no other process can be reached any more.
    os._exit(1)
