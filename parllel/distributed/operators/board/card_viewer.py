"""Pictures for cards that are looked at, at most so many a second, and that of the end in any case.

pages                  look, leave    which cards they show
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
    """Want pictures of the cards that somebody looks at, and keep the newest of each.

    Args:
        condition: the board's lock.
        cards: by id.
        frames_per_s: of each card, at most.
        looks: which cards each page shows.
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
        """Return True: somebody may look at any card, later."""
        return True

    def wants(self, name: str, episode: int) -> bool:
        """Return whether a card is looked at, and its next picture is due."""
        # The lock is for the looks and the card's state; it is held for microseconds before each command.
        with self._condition:
            if not self._is_looked_at(name):
                return False
            card, now = self._cards[name], time.monotonic()
            due = self._due.get(name, 0.0)
            # A step by hand may be the last for long.
            if card.playing and now < due:
                return False
            self._due[name] = (due if now - due < self._pause_s else now) + self._pause_s
            return True

    def wants_last(self, name: str, episode: int) -> bool:
        """Return whether any page is open: the last picture stays, and who looks later sees that."""
        with self._condition:
            return bool(self._looks) or self._cards[name].has_people

    def _is_looked_at(self, name: str) -> bool:
        # A person who comes to a card later has to see what is asked: nothing is drawn until the answer.
        if self._cards[name].has_people:
            return True
        return any(name in shown for shown in self._looks.values())

    def see(self, name: str, env_id: str, episode: int, step: int, payload: Any) -> None:
        """Keep a picture, or the text in its place."""
        if not isinstance(payload, dict):
            return
        card = self._cards[name]
        if isinstance(payload.get("text"), str):
            with self._condition:
                card.text = payload["text"]
                self._condition.note()
            return
        # Without the lock: pictures of old workers take milliseconds to encode.
        png = _png(payload)
        if png is not None:
            card.drew(episode, step, png)


def _png(payload: dict[str, Any]) -> bytes | None:
    """Return a picture of a worker as a file of PNG; None if it is none."""
    try:
        if payload.get("mode") == "png":
            return base64.b64decode(payload["data"])
        picture = np.asarray(payload.get("rgb"), np.uint8)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    is_picture = picture.ndim == 3 and picture.shape[2] == 3 and picture.size
    return png_bytes(picture) if is_picture else None
