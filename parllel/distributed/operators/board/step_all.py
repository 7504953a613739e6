"""A step of all cards together: the next begins when every card has finished the last.

    requests              add, drop                      how many are wished for
    threads of cards      advance, each time at the gate the last card to arrive lets the next begin

All of it is within the board's lock.
"""

from __future__ import annotations

from collections.abc import Mapping

from parllel.distributed.operators.board.card import Card
from parllel.distributed.operators.experiments.episode_gate import LockStepGate
from parllel.errors import WrongStateError


class StepAll:
    """Steps of all cards, in a queue.

    Args:
        cards: by id.

    Attributes:
        lock_step: of an experiment. People take these steps, too, as nobody can step without them there;
            elsewhere a person plays at their own pace.
    """

    def __init__(self, cards: Mapping[str, Card]) -> None:
        self._cards = cards
        self._n_left = 0
        self.lock_step: LockStepGate | None = None

    @property
    def n_left(self) -> int:
        """How many steps were wished for and are not finished."""
        is_open = any(card.is_stepping for card in self._cards.values())
        return is_open + (self._n_left if is_open or self._able() else 0)

    def add(self) -> None:
        """Wish for a step of each card that can take one.

        Raises:
            WrongStateError: if none can.
        """
        if not self._able():
            self._refuse()
        self._n_left += 1
        self.advance()

    def drop(self) -> None:
        """Take back the steps that have not begun."""
        self._n_left = 0

    def advance(self) -> bool:
        """Let the next step begin unless a card is within the last; return whether it has."""
        if not self._n_left or any(card.is_stepping for card in self._cards.values()):
            return False
        able = self._able()
        self._n_left = self._n_left - 1 if able else 0
        for card in able:
            card.permits += 1
            card.is_stepping = True
        return bool(able)

    def _able(self) -> list[Card]:
        return [
            card
            for card in self._cards.values()
            if (card.is_within or card.wanted is not None)
            and not (card.playing or self._is_between(card))
            and (self.lock_step is not None or not card.has_people)
        ]

    def _is_between(self, card: Card) -> bool:
        """Return whether a card waits for the ends of other episodes."""
        # The gate lets all begin at once, which their threads notice one after the other.
        gate = self.lock_step
        return card.awaits_others and gate is not None and not gate.is_within(card.card_id)

    def _refuse(self) -> None:
        within = [
            card for card in self._cards.values() if card.is_within or card.wanted is not None
        ]
        playing = [card.card_id for card in within if card.playing]
        if playing:
            raise WrongStateError(f"card {playing[0]!r} plays by itself; stop it first")
        people = [card.card_id for card in within if card.has_people]
        if people:
            raise WrongStateError(
                f"card {people[0]!r} is a person's, who plays at their own pace; play it, or step it alone"
            )
        raise WrongStateError("no card is within an episode at the moment; wait for the next")
