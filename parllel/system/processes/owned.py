"""Objects that belong to the process that made them, and that a fork must not use: workers and their pipes.

    owner   own(pool)                         remembered in a weak set
    fork    pool.disown(why)                  before any other code runs in the fork
    fork    any use of the pool               raises ClosedError before a word or byte is written

A fork has the same memory, pipes and numbers as its owner. If both commanded the same workers, each would
take the other's answers for its own.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

_owned: weakref.WeakSet[OwnedByProcess] = weakref.WeakSet()
_pid = os.getpid()


class OwnedByProcess(Protocol):
    """An object that belongs to the process that made it."""

    def disown(self, why: str) -> None:
        """Refuse all further use, in a fork of the owner. why: the reason, for messages."""


def own(thing: OwnedByProcess) -> None:
    """Call `thing.disown` in every fork of this process, as long as the object exists."""
    _owned.add(thing)


def _disown_all() -> None:
    global _pid
    owner, _pid = _pid, os.getpid()
    why = f"belongs to process {owner}, of which this process, {_pid}, is a forked copy; make one here"
    # A copy, as objects may be collected during the loop.
    for thing in list(_owned):
        thing.disown(why)
    # A fork of this fork need not refuse them again.
    _owned.clear()


if hasattr(os, "register_at_fork"):
    # Runs for `os.fork`, and so for start_method="fork"; other new processes have no copies.
    os.register_at_fork(after_in_child=_disown_all)
