"""Who uses a part of which there is one: an environment, a cage, a transform."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from typing import Any
from weakref import ref


class Owners:
    """Who uses a part that has one user at a time, until the user releases it or is garbage.

    Parts are compared by identity, and kept alive by their user. Each process counts for itself: a part that
    a fork has copied is another part.
    """

    def __init__(self) -> None:
        # By id of the part: process, part (None if it cannot be referred to weakly), and owner.
        self._entries: dict[int, tuple[int, Any, ref[Any]]] = {}
        self._limit = 64  # entries above which those of dead owners are dropped

    def owner_of(self, part: Any) -> Any:
        """Return who uses a part; None if nobody does."""
        if self._find(part) is None:
            return None
        # An owner that nobody holds may still be in a cycle. Searched only before a part is refused.
        gc.collect()
        return self._find(part)

    def _find(self, part: Any) -> Any:
        pid, known, owner = self._entries.get(id(part), (0, None, None))
        if owner is None or pid != os.getpid() or (known is not None and known() is not part):
            return None
        return owner()

    def claim(self, part: Any, owner: Any) -> None:
        """Note that `owner` uses a part."""
        known = None
        with suppress(TypeError):  # a class with slots
            known = ref(part)
        # Now and then, as there may be thousands of environments.
        if len(self._entries) >= self._limit:
            entries = self._entries.items()
            self._entries = {key: entry for key, entry in entries if entry[2]() is not None}
            self._limit = max(64, 2 * len(self._entries))
        self._entries[id(part)] = os.getpid(), known, ref(owner)

    def release(self, owner: Any) -> None:
        """Note that `owner` uses nothing any more."""
        entries = self._entries.items()
        self._entries = {key: entry for key, entry in entries if entry[2]() is not owner}
