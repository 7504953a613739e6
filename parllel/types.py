"""Small types that every layer shares."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import ref

# A tree: buffers, named tuples or dicts, with arrays, scalars or None as leaves.
Tree: TypeAlias = Any
# What `state()` returns: JSON values and numpy arrays, in dicts and lists.
State: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class BatchSpec:
    """The size of a batch: `T` time steps of `B` environments.

    Raises:
        ValueError: if either is less than one.
    """

    T: int
    B: int

    def __post_init__(self) -> None:
        for name in ("T", "B"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"BatchSpec.{name}: expected an int of at least 1, got {value!r}")

    @property
    def size(self) -> int:
        """Environment steps in one batch."""
        return self.T * self.B

    @property
    def shape(self) -> tuple[int, int]:
        """`(T, B)`."""
        return (self.T, self.B)


class _Closes(Protocol):
    def close(self) -> None: ...


ClosingT = TypeVar("ClosingT", bound="Closing")


class Closing:
    """Let a class be used in `with`, whose block calls its `close` at the end, after an error too."""

    def __enter__(self: ClosingT) -> ClosingT:
        return self

    def __exit__(
        self: _Closes,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def reward_of(reward: Any, *of: str) -> float:
    """Return a reward as a float.

    of: what the message calls the environment, and the agent where there are several.

    Raises:
        TypeError: unless it is one number.
    """
    try:
        return float(reward)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(
            f"{': '.join(of)}: reward: expected a number, got {reward!r:.200}"
        ) from None


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
