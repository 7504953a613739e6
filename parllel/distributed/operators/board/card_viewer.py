"""Pictures of the watched cards: a limited number per second, and always the last of an episode.

pages                  look, leave    set which cards they show
threads of cards       wants, see     before and after each command
"""

from __future__ import annotations

import base64
import time
from collections.abc import Collection, Hashable, Mapping
from typing import Any

import numpy as np

from parllel.distributed.operators.board.board_condition import BoardCondition
from parllel.distributed.operators.board.card import Card
from parllel.pictures.png import png_bytes


class CardViewer:
    """Requests pictures of the cards that somebody watches, and keeps the newest of each.

    Args:
        condition: the board's lock.
        cards: the cards, keyed by id.
        frames_per_s: maximum number of pictures per second for each card.
        looks: ids of the cards that each page shows.
    """

    def __init__(
        self,
        condition: BoardCondition,
        cards: Mapping[str, Card],
        frames_per_s: float,
        looks: Mapping[Hashable, Collection[str]],
    ) -> None:
        self._condition, self._cards, self._looks = condition, cards, looks
        self._pause_s = 1.0 / frames_per_s
        self._due: dict[str, float] = {}

    def may_view(self, name: str) -> bool:
        """Return True: any card may be watched later."""
        return True

    def wants(self, name: str, episode: int) -> bool:
        """Return whether a card is watched and its next picture is due."""
        # Held for microseconds before each command: `looks` and the card's state change in other threads.
        with self._condition:
            if not self._is_looked_at(name):
                return False
            card, now = self._cards[name], time.monotonic()
            due = self._due.get(name, 0.0)
            # Steps by hand are always drawn: the next one may be far off.
            if card.playing and now < due:
                return False
            self._due[name] = (due if now - due < self._pause_s else now) + self._pause_s
            return True

    def wants_last(self, name: str, episode: int) -> bool:
        """Return whether any page is open.

        The last picture of an episode stays on its card, so people who look later see it.
        """
        with self._condition:
            return bool(self._looks) or self._cards[name].has_people

    def _is_looked_at(self, name: str) -> bool:
        # Always drawn for people: nothing new is drawn until they answer, and they may open the card later.
        if self._cards[name].has_people:
            return True
        return any(name in shown for shown in self._looks.values())

    def see(self, name: str, env_id: str, episode: int, step: int, payload: Any) -> None:
        """Store a picture, or a text shown instead."""
        if not isinstance(payload, dict):
            return
        card = self._cards[name]
        if isinstance(payload.get("text"), str):
            with self._condition:
                card.text = payload["text"]
                self._condition.note()
            return
        # Without the lock: raw pictures of other workers take milliseconds to encode.
        png = _png(payload)
        if png is not None:
            card.drew(episode, step, png)


def _png(payload: dict[str, Any]) -> bytes | None:
    """Return a worker's frame as PNG bytes, or None if it rendered nothing."""
    try:
        if payload.get("mode") == "png":
            return base64.b64decode(payload["data"])
        picture = np.asarray(payload.get("rgb"), np.uint8)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    is_picture = picture.ndim == 3 and picture.shape[2] == 3 and picture.size
    return png_bytes(picture) if is_picture else None
