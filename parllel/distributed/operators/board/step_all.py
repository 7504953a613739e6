"""Steps of all cards together: the next one starts when every card has finished the last.

    requests              add, drop       how many steps are requested
    threads of cards      advance         the last card to arrive at the gate starts the next step

All of it is within the board's lock.
"""

from __future__ import annotations

from collections.abc import Mapping

from parllel.distributed.operators.board.card import Card
from parllel.distributed.operators.experiments.episode_gate import LockStepGate
from parllel.errors import WrongStateError


class StepAll:
    """Queue of pending steps that all cards take together.

    Args:
        cards: the cards, keyed by id.

    Attributes:
        lock_step: the gate of a lock-step experiment. In such an experiment, cards with human
            players take part too, because no card can step without them. Otherwise people play at
            their own pace.
    """

    def __init__(self, cards: Mapping[str, Card]) -> None:
        self._cards = cards
        self._n_left = 0
        self.lock_step: LockStepGate | None = None

    @property
    def n_left(self) -> int:
        """The number of requested steps that are not finished."""
        is_open = any(card.is_stepping for card in self._cards.values())
        return is_open + (self._n_left if is_open or self._able() else 0)

    def add(self) -> None:
        """Request a step of each card that can take one.

        Raises:
            WrongStateError: if no card can take a step.
        """
        if not self._able():
            self._refuse()
        self._n_left += 1
        self.advance()

    def drop(self) -> None:
        """Cancel the steps that have not started."""
        self._n_left = 0

    def advance(self) -> bool:
        """Start the next step unless a card is still in the last one. Returns whether it did."""
        if not self._n_left or any(card.is_stepping for card in self._cards.values()):
            return False
        able = self._able()
        # Without any card that can step, requests would wait for ever; they are cancelled.
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
        """Return whether a card waits for other episodes to end."""
        # The gate releases all cards at once, but their threads notice it one after another.
        gate = self.lock_step
        return card.awaits_others and gate is not None and not gate.is_within(card.card_id)

    def _refuse(self) -> None:
        within = [
            card for card in self._cards.values() if card.is_within or card.wanted is not None
        ]
        playing = [card.card_id for card in within if card.playing]
        if playing:
            raise WrongStateError(f"card {playing[0]!r} is playing by itself; stop it first")
        people = [card.card_id for card in within if card.has_people]
        if people:
            raise WrongStateError(
                f"card {people[0]!r} has a human player, who decides when to step; play it, or "
                "step it separately"
            )
        raise WrongStateError("no card is in an episode at the moment; wait for the next one")
