"""Registry of exclusive owners of environments, cages and transforms."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from typing import Any
from weakref import ref


class Owners:
    """Registry of exclusive owners. A claim lasts until its owner releases it or is garbage-collected.

    Parts are compared by identity and kept alive by their owner. Claims are valid within one
    process: after a fork, the copy of a part counts as a different part.
    """

    def __init__(self) -> None:
        # By id of the part: process, weak reference to the part (None for a class with slots), and to the
        # owner.
        self._entries: dict[int, tuple[int, Any, ref[Any]]] = {}
        self._limit = 64  # entries above which those of dead owners are dropped

    def owner_of(self, part: Any) -> Any:
        """Return the owner of a part, or None."""
        if self._find(part) is None:
            return None
        # An unreachable owner may still be in a reference cycle. Collected only before a part is refused.
        gc.collect()
        return self._find(part)

    def _find(self, part: Any) -> Any:
        pid, known, owner = self._entries.get(id(part), (0, None, None))
        if owner is None or pid != os.getpid() or (known is not None and known() is not part):
            return None
        return owner()

    def claim(self, part: Any, owner: Any) -> None:
        """Record `owner` as the owner of a part."""
        known = None
        with suppress(TypeError):  # a class with slots
            known = ref(part)
        # Dead entries are dropped now and then only, as there may be thousands of environments.
        if len(self._entries) >= self._limit:
            entries = self._entries.items()
            self._entries = {key: entry for key, entry in entries if entry[2]() is not None}
            self._limit = max(64, 2 * len(self._entries))
        self._entries[id(part)] = os.getpid(), known, ref(owner)

    def release(self, owner: Any) -> None:
        """Drop all claims of `owner`."""
        entries = self._entries.items()
        self._entries = {key: entry for key, entry in entries if entry[2]() is not owner}
