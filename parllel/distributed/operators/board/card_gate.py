"""Where a card's thread waits until it may take a step: it plays, or has a permit.

    the card's thread   before_step     waits for `playing`, at its speed, or takes one of `permits`
    requests            play, stop, step, reset, remove change these under the board's lock, which wakes it

After it comes the gate that the card would pass without a board, such as that of an experiment in lock-step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from parllel.distributed.operators.board.board_condition import BoardCondition
from parllel.distributed.operators.board.card import Card
from parllel.distributed.operators.board.step_all import StepAll
from parllel.distributed.operators.experiments.episode_gate import (
    EpisodeAbandonedError,
    EpisodeGate,
    StoppedError,
)

# A worker that dies while it has nothing to do is noticed after so long.
_LOOK_S = 0.5


class RateLimiter:
    """How fast cards play.

    Attributes:
        steps_per_s: of each card; None for as fast as possible.
    """

    def __init__(self, steps_per_s: float | None = None) -> None:
        self.steps_per_s = steps_per_s
        self._next: dict[str, float] = {}

    def left_s(self, name: str) -> float:
        """Return how long a card has still to wait for its next step."""
        if self.steps_per_s is None:
            return 0.0
        # A rate may have been changed since the last step.
        return min(self._next.get(name, 0.0) - time.monotonic(), 1.0 / self.steps_per_s)

    def goes(self, name: str) -> None:
        """Note that it takes one now."""
        if self.steps_per_s is not None:
            now, pause_s = time.monotonic(), 1.0 / self.steps_per_s
            # From the moment it was due, so that waking up late does not add up.
            due = self._next.get(name, 0.0)
            self._next[name] = (due if 0.0 <= now - due < pause_s else now) + pause_s


class CardGate(EpisodeGate):
    """Hold cards before their steps.

    Args:
        condition: the board's lock.
        cards: by name.
        rate_limiter: of those that play.
        steps: of all cards of the board; the last to arrive here lets the next begin.
        inner: passed after it.
        lost: whether the worker of a card has ended, so that the step should be taken to find out why.
    """

    def __init__(
        self,
        condition: BoardCondition,
        cards: Mapping[str, Card],
        rate_limiter: RateLimiter,
        steps: StepAll,
        inner: EpisodeGate,
        lost: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._condition, self._cards, self._inner = condition, cards, inner
        self._rate_limiter, self._steps, self._lost = rate_limiter, steps, lost
        self._is_stopped = False

    def begin_episode(self, name: str) -> None:
        """Wait for the inner gate alone."""
        self._inner.begin_episode(name)

    def before_step(self, name: str) -> None:
        """Wait until the card plays or has a permit; raise EpisodeAbandonedError if it is reset."""
        card = self._cards[name]
        self._hold(card, "ready")
        # Without the lock: in lock-step it waits for cards that are still held.
        self._inner.before_step(name)
        with self._condition:
            card.now("thinking")

    def _hold(self, card: Card, status: str | None = None) -> None:
        """Wait until the card may go on, and show this status meanwhile."""
        while not self._passes(card, status):
            pass

    def _passes(self, card: Card, status: str | None) -> bool:
        """Return whether the card may go on now; wait for a while if not."""
        name = card.card_id
        with self._condition:
            # Before the permits: a reset or the end comes before a step that was wished for earlier.
            self._raise_if_wished(card)
            has_changed = self._arrives(card)
            left_s = self._rate_limiter.left_s(name) if card.playing else _LOOK_S
            if card.permits or (card.playing and left_s <= 0.0):
                card.permits = max(0, card.permits - 1)
                self._rate_limiter.goes(name)
                return True
            if status is not None and card.status != status:
                card.now(status)
                has_changed = True
            if has_changed:
                return False  # announced before it waits
            # At most half a second, as nothing wakes it when its worker dies.
            self._condition.wait(min(left_s, _LOOK_S))
            self._raise_if_wished(card)
        # Without the lock, as it asks the system. The step that follows finds out how the worker ended.
        return self._lost(name)

    def _arrives(self, card: Card) -> bool:
        """Begin the next step of all if this card was the last to arrive; return whether anything changed."""
        has_stepped = card.is_stepping and not card.permits
        if has_stepped:
            card.is_stepping = False
        if self._steps.advance() or has_stepped:
            self._condition.note()
            return True
        return False

    def _raise_if_wished(self, card: Card) -> None:
        if self._is_stopped:
            raise StoppedError
        if card.abandoned:
            raise EpisodeAbandonedError

    def end_episode(self, name: str) -> None:
        """Let others go on without it."""
        self._inner.end_episode(name)

    def leave(self, name: str) -> None:
        """Let others go on without it."""
        self._inner.leave(name)

    def pause(self, seconds: float) -> None:
        """Wait for so long, less if stopped."""
        self._inner.pause(seconds)

    def stop(self) -> None:
        """Let all calls, those that wait included, raise StoppedError."""
        # First what is held here: woken by the inner gate alone, a card would be held again.
        with self._condition:
            self._is_stopped = True
            # They wait for a person, not here.
            for card in self._cards.values():
                card.questions.withdraw(StoppedError())
            self._condition.note()
        self._inner.stop()
