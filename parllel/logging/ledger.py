"""Counters whose sums must agree."""

from __future__ import annotations

import operator
import threading
from collections.abc import Mapping
from typing import Any


class LedgerError(AssertionError):
    """The counters of a ledger do not add up, since something was lost or counted twice."""


class Ledger:
    """Counts items that enter a system and where they end up, to detect whether any are missing.

    One call of `add` counts all that it is given at the same moment. If each call keeps the identity, it
    holds at any time; otherwise once those who count are at rest. Threads may share a ledger. Processes have
    one each, whose counters may be negative (one process queues, another takes from the queue); `merge` adds
    them up.

    Args:
        identity: sums of counters, such as "produced = accepted + stale + queued"; it names all of them.

    Raises:
        ValueError: if `identity` is anything else, or names a counter twice.

    Example:
        >>> ledger = Ledger("produced = accepted + stale + queued")
        >>> ledger.add(produced=3, queued=3)
        >>> ledger.add(queued=-2, accepted=2)
        >>> ledger.counts()
        {'produced': 3, 'accepted': 2, 'stale': 0, 'queued': 1}
        >>> ledger.balanced()
        True
    """

    def __init__(self, identity: str) -> None:
        self._left, self._right = _sides_of(identity)
        self._counts = dict.fromkeys(self._left + self._right, 0)
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """The identity, as it is written in messages."""
        return f"{' + '.join(self._left)} = {' + '.join(self._right)}"

    def add(self, /, *names: str, **amounts: int) -> None:
        """Count one for each of the names, and the given amounts, which may be negative; all at once.

        Raises:
            ValueError: for a counter that the identity does not name; nothing is counted then.
            TypeError: for an amount that is no integer.
        """
        steps = [(name, 1) for name in names]
        steps += [(name, operator.index(amount)) for name, amount in amounts.items()]
        for name, _ in steps:
            if name not in self._counts:
                raise ValueError(
                    f"Ledger: expected one of the counters of {self.identity!r}, got {name!r}"
                )
        with self._lock:
            for name, amount in steps:
                self._counts[name] += amount

    def counts(self) -> dict[str, int]:
        """Return all counters, in the order of the identity, as they were at one moment."""
        with self._lock:
            return dict(self._counts)

    def balanced(self) -> bool:
        """Return whether the identity holds now."""
        return self._difference(self.counts()) == 0

    def check(self) -> None:
        """Raise a LedgerError, which says all counters and what is missing, if the identity does not hold."""
        counts = self.counts()
        difference = self._difference(counts)
        if difference:
            left, right = (
                " + ".join(str(counts[name]) for name in side) for side in (self._left, self._right)
            )
            where = "right" if difference > 0 else "left"
            raise LedgerError(
                f"expected {self.identity}, got {left} = {right}: "
                f"{abs(difference)} missing on the {where}"
            )

    def _difference(self, counts: dict[str, int]) -> int:
        return sum(counts[name] for name in self._left) - sum(counts[name] for name in self._right)

    def merge(self, other: Ledger | Mapping[str, Any]) -> None:
        """Add the counters of another ledger, or of its `state()`, which travels between processes.

        Counters are totals: to ask several workers again and again, merge their states into a new ledger each
        time.

        Raises:
            ValueError: if `other` has another identity.
        """
        self.add(**self._counts_in(other.state() if isinstance(other, Ledger) else other))

    def state(self) -> dict[str, Any]:
        """Return the identity and all counters, as JSON values."""
        return {"identity": self.identity, "counts": self.counts()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if it is that of another identity, or lacks a counter; the counters stay as they are.
            TypeError: for a count that is no integer.
        """
        counts = {name: operator.index(count) for name, count in self._counts_in(state).items()}
        if counts.keys() != self._counts.keys():
            raise ValueError(f"Ledger: expected counts of {list(self._counts)}, got {list(counts)}")
        with self._lock:
            self._counts.update(counts)

    def _counts_in(self, state: Mapping[str, Any]) -> dict[str, Any]:
        if state["identity"] != self.identity:
            raise ValueError(
                f"Ledger: expected the state of a ledger with {self.identity!r}, got one with "
                f"{state['identity']!r}"
            )
        return dict(state["counts"])


def _sides_of(identity: str) -> tuple[list[str], list[str]]:
    sides = [[name.strip() for name in side.split("+")] for side in identity.split("=")]
    names = [name for side in sides for name in side]
    if len(sides) != 2 or not all(name.isidentifier() for name in names):
        raise ValueError(
            "Ledger: identity: expected two sums of names, such as 'produced = accepted + queued', "
            f"got {identity!r}"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"Ledger: identity: expected each counter once, got {twice} in {identity!r}"
        )
    return sides[0], sides[1]
