"""Gate at which a card's thread waits until it may take a step: while playing, or by a permit.

    the card's thread   before_step     waits for `playing`, at its speed, or takes one of `permits`
    requests            play, stop, step, reset, remove change these under the board's lock, which wakes it

It is followed by the gate that the card would pass without a board, such as that of a lock-step experiment.
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

# A worker that dies while it is idle is noticed after at most this long.
_LOOK_S = 0.5


class RateLimiter:
    """Limits the speed at which cards play.

    Attributes:
        steps_per_s: maximum speed of each card. None means no limit.
    """

    def __init__(self, steps_per_s: float | None = None) -> None:
        self.steps_per_s = steps_per_s
        self._next: dict[str, float] = {}

    def left_s(self, name: str) -> float:
        """Return the seconds until a card's next step is due."""
        if self.steps_per_s is None:
            return 0.0
        # At most one pause: the rate may have been raised since the last step.
        return min(self._next.get(name, 0.0) - time.monotonic(), 1.0 / self.steps_per_s)

    def goes(self, name: str) -> None:
        """Record that a card is taking a step now."""
        if self.steps_per_s is not None:
            now, pause_s = time.monotonic(), 1.0 / self.steps_per_s
            # Counted from when it was due, so that late wake-ups do not add up.
            due = self._next.get(name, 0.0)
            self._next[name] = (due if 0.0 <= now - due < pause_s else now) + pause_s


class CardGate(EpisodeGate):
    """Holds cards before their steps.

    Args:
        condition: the board's lock.
        cards: the cards, keyed by name.
        rate_limiter: limits the speed of playing cards.
        steps: queue of steps of all cards. The last card to arrive here starts the next step.
        inner: gate that the card passes after this one.
        lost: function that returns whether the worker of a card has ended. If it has, the card may
            step, and the step reports why.
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
        """Wait at the inner gate only: this gate does not hold cards before an episode."""
        self._inner.begin_episode(name)

    def before_step(self, name: str) -> None:
        """Wait until the card plays or has a permit. Raises EpisodeAbandonedError on a reset."""
        card = self._cards[name]
        self._hold(card, "ready")
        # Without the lock: in lock-step this waits for cards that are still held here.
        self._inner.before_step(name)
        with self._condition:
            card.now("thinking")

    def _hold(self, card: Card, status: str | None = None) -> None:
        """Wait until the card may go on, showing `status` meanwhile."""
        while not self._passes(card, status):
            pass

    def _passes(self, card: Card, status: str | None) -> bool:
        """Return whether the card may go on. If not, wait a while first."""
        name = card.card_id
        with self._condition:
            # Before the permits: a reset or the end overrides steps requested earlier.
            self._raise_if_requested(card)
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
                return False  # the change is announced on release; only then may it wait
            # At most half a second, as the death of a worker wakes nobody.
            self._condition.wait(min(left_s, _LOOK_S))
            self._raise_if_requested(card)
        # Outside the lock, as it asks the system. If the worker has ended, the step that follows reports how.
        return self._lost(name)

    def _arrives(self, card: Card) -> bool:
        """Start the next step of all if this card arrived last. Returns whether anything changed."""
        has_stepped = card.is_stepping and not card.permits
        if has_stepped:
            card.is_stepping = False
        if self._steps.advance() or has_stepped:
            self._condition.note()
            return True
        return False

    def _raise_if_requested(self, card: Card) -> None:
        if self._is_stopped:
            raise StoppedError
        if card.abandoned:
            raise EpisodeAbandonedError

    def end_episode(self, name: str) -> None:
        """Let the other cards continue without this one."""
        self._inner.end_episode(name)

    def leave(self, name: str) -> None:
        """Let the other cards continue without this one permanently."""
        self._inner.leave(name)

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until stopped."""
        self._inner.pause(seconds)

    def stop(self) -> None:
        """Make all calls raise StoppedError, including those that are waiting."""
        # This gate first: a card released by the inner gate would otherwise be held here again.
        with self._condition:
            self._is_stopped = True
            # These wait for a person's answer, not at the gate.
            for card in self._cards.values():
                card.questions.withdraw(StoppedError())
            self._condition.note()
        self._inner.stop()
