"""What a forked copy of a process must leave alone: its workers, and what they are reached by.

    owner   own(pool)                         remembered, weakly
    fork    copy: pool.disown(why)            before any other code runs there
    copy    whatever is asked of the pool     raises ClosedError, before a word or a byte is written

A copy has the same memory, pipes and numbers as its owner. Two processes that command the same workers would
each take the other's answers for its own.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

_owned: weakref.WeakSet[OwnedByProcess] = weakref.WeakSet()
_pid = os.getpid()


class OwnedByProcess(Protocol):
    """What belongs to the process that made it."""

    def disown(self, why: str) -> None:
        """Refuse everything from now on, in a copy of the owner. why: for messages."""


def own(thing: OwnedByProcess) -> None:
    """Call `thing.disown` in each process that is forked from this one, as long as it exists."""
    _owned.add(thing)


def _disown_all() -> None:
    global _pid
    owner, _pid = _pid, os.getpid()
    why = f"belongs to process {owner}, of which this process, {_pid}, is a forked copy; make one here"
    for thing in list(_owned):
        thing.disown(why)
    _owned.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
