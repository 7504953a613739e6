"""What tests of boards share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

LONG_S = 30.0
Shown = dict[str, Any]


def until(board: Any, holds: Callable[[Shown], bool], timeout_s: float = LONG_S) -> Shown:
    """Return the first snapshot for which something holds."""
    changed = threading.Event()
    end_listening = board.listen(changed.set)
    end = time.monotonic() + timeout_s
    try:
        while True:
            changed.clear()
            shown: Shown = board.snapshot()
            if holds(shown):
                return shown
            left_s = end - time.monotonic()
            assert left_s > 0, shown
            changed.wait(left_s)
    finally:
        end_listening()


def settled(board: Any, *statuses: str, cards: list[str] | None = None) -> Shown:
    """Return the first snapshot in which all cards have one of these statuses."""

    def holds(shown: Shown) -> bool:
        return bool(shown["cards"]) and all(
            card["status"] in statuses
            for card in shown["cards"]
            if cards is None or card["id"] in cards
        )

    return until(board, holds)


def card_of(shown: Shown, card_id: str) -> Shown:
    """Return one card of a snapshot."""
    (card,) = [card for card in shown["cards"] if card["id"] == card_id]
    return card
