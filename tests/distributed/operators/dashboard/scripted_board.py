"""A board without operators, whose cards and frames a test decides."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from parllel.distributed.operators.board.board import UnknownCardError
from parllel.errors import WrongStateError


class Shown(NamedTuple):
    number: int
    episode: int
    step: int
    png: bytes


class ScriptedBoard:
    """What a server asks of a board.

    Attributes:
        asked: `(method, arguments)` of each wish, in order.
        errors: what the next wish of a name raises.
        looked: by viewer, the cards that it looks at.
    """

    def __init__(self, folder):
        self.folder = folder
        self.asked: list[tuple[str, Any]] = []
        self.errors: dict[str, Exception] = {}
        self.looked: dict[Any, frozenset[str]] = {}
        self.reward: float | None = None
        self.snapshots = 0
        self._lock = threading.Lock()
        self._listeners: list[Any] = []
        self._version = 0
        self._frames: dict[str, Shown | None] = {}

    def add_card(self, card):
        with self._lock:
            self._frames[card] = None
        self.change()

    def remove_card(self, card):
        with self._lock:
            del self._frames[card]
        self.change()

    def draw(self, card, number, nbytes=100, *, episode=0, png=None):
        """Have a new frame, which shows its number."""
        with self._lock:
            png = png or number.to_bytes(4, "big") * (nbytes // 4)
            self._frames[card] = Shown(number, episode, number * 10, png)
        self.change()

    def change(self):
        with self._lock:
            self._version += 1
            listeners = list(self._listeners)
        for changed in listeners:
            changed()

    @property
    def listeners(self):
        return len(self._listeners)

    def snapshot(self):
        if "snapshot" in self.errors:
            raise self.errors["snapshot"]
        with self._lock:
            self.snapshots += 1
            cards = [
                {
                    "id": card,
                    "frame": None if frame is None else frame.number,
                    "reward": self.reward,
                }
                for card, frame in self._frames.items()
            ]
            return {"version": self._version, "cards": cards}

    def listen(self, changed):
        self._listeners.append(changed)
        return lambda: self._listeners.remove(changed)

    def look(self, viewer, cards):
        self.looked[viewer] = frozenset(cards)

    def leave(self, viewer):
        self.looked.pop(viewer, None)

    def frame(self, card):
        with self._lock:
            if card not in self._frames:
                raise UnknownCardError(f"there is no card {card!r}")
            return self._frames[card]

    def __getattr__(self, name):
        if name not in (
            *("launch", "remove", "restart", "reset", "step", "play", "stop"),
            *("set_speed", "act", "watch", "unwatch"),
        ):
            raise AttributeError(name)

        def wish(*arguments, **named):
            if name in self.errors:
                raise self.errors.pop(name)
            self.asked.append((name, named or arguments))

        return wish


WRONG_MOMENT = WrongStateError("an experiment is being watched")
