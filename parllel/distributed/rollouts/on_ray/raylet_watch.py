"""End an actor with the raylet of its node, which started it."""

from __future__ import annotations

import os
import threading
import time

# At most so much later than the raylet.
_EVERY_S = 1.0


def end_with_raylet() -> None:
    """Let a thread end this process once its parent has ended.

    Ray's own processes then look whether their parent is process 1. Where orphans go to another, to systemd
    in a user's session for one, actors of a run that was killed would go on, and so would their environments.
    """
    parent = os.getppid()
    threading.Thread(target=_watch, args=(parent,), name="raylet watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY_S)
    # Nothing can be saved: there is no way to any other process left.
    os._exit(1)
