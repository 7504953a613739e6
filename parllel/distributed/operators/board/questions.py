"""What people are asked at one card of a board, and what they answer.

    the card's thread     ask: opens questions, waits until each has its answer
    any other thread      answer: one of them; withdraw: all of them; as_json: shows those that are open
    one lock              over the open questions. An answer is checked under it, by what the card's thread
                          knows: that thread cannot go on, and change it, before it has the lock itself
    the board's lock      may be held when this one is taken, never the other way round: `changed`, which
                          takes it, is called without this one

A number is given once: an answer that comes late finds its question gone, and is never taken for another's.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from parllel.distributed.operators.protocol.choosing import Question
from parllel.errors import WrongStateError

_LOOK_S = 1.0
_SHOWN = 100  # characters of an answer, in messages


class Questions:
    """Ask people and wait for what they choose, for as long as they take.

    Args:
        changed: called without the lock after questions were opened, answered or withdrawn.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._condition = threading.Condition()
        self._last = 0
        self._open: dict[int, Question] = {}
        self._answers: dict[int, Any] = {}
        self._withdrawn: Exception | None = None

    @property
    def is_open(self) -> bool:
        """Whether an answer is awaited."""
        # Without the lock: it is read within the board's, by what may be called from `changed`.
        return bool(self._open)

    def ask(self, asked: Sequence[Question], look: Callable[[], None] = lambda: None) -> list[Any]:
        """Open questions, wait for all of their answers, and return these in the same order.

        Args:
            asked: the questions, opened at the same time.
            look: called about once a second; what it raises withdraws the questions, and is raised.

        Raises:
            Exception: what `withdraw` was given.
        """
        with self._condition:
            # Even if they are withdrawn already: `_are_answered` says so, and none is left open.
            numbers = range(self._last + 1, self._last + 1 + len(asked))
            self._last += len(asked)
            self._open.update(zip(numbers, asked, strict=True))
        self._changed()
        try:
            while not self._are_answered(numbers):
                look()  # without the lock: it may wait for a process, or raise
            return [self._answers[number] for number in numbers]
        finally:
            with self._condition:
                for number in numbers:
                    self._open.pop(number, None)
                    self._answers.pop(number, None)
            self._changed()

    def _are_answered(self, numbers: Sequence[int]) -> bool:
        """Wait a while for the answers to these questions, and return whether they are there."""

        def is_over() -> bool:
            return self._withdrawn is not None or all(n in self._answers for n in numbers)

        with self._condition:
            over = self._condition.wait_for(is_over, _LOOK_S)
            # Before the answers: what was withdrawn is not to be played.
            if self._withdrawn is not None:
                raise self._withdrawn
            return over

    def answer(self, number: int, action: Any) -> None:
        """Answer a question.

        Args:
            number: of the question, as `as_json` shows it.
            action: what was chosen, as JSON values.

        Raises:
            WrongStateError: if the question is not open: it was answered, or withdrawn.
            ValueError: for what cannot be chosen; the question stays open.
        """
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"number: expected that of a question, an int, got {number!r}")
        with self._condition:
            asked = self._open.get(number)
            if asked is None or self._withdrawn is not None:
                raise WrongStateError(
                    f"question {number!r}: is not open any more; answer one of "
                    f"{list(self._open) or 'the next, when it is asked'}"
                )
            _check(asked, action)
            self._answers[number] = action
            del self._open[number]  # now, so that of two answers the second is refused
            self._condition.notify_all()
        self._changed()

    def withdraw(self, error: Exception) -> None:
        """Let `ask` raise `error`, at once if it waits, and at each call until `admit`."""
        with self._condition:
            self._withdrawn = error
            self._open.clear()
            self._condition.notify_all()
        self._changed()

    def admit(self) -> None:
        """Let `ask` ask again, after `withdraw`."""
        with self._condition:
            self._withdrawn = None

    def as_json(self) -> list[dict[str, Any]]:
        """Return the open questions, in the order of their numbers."""
        with self._condition:
            found = sorted(self._open.items())
        return [
            {
                "number": number,
                "player_id": asked.player_id,
                "text": asked.text,
                "actions": None
                if asked.actions is None
                else [offered._asdict() for offered in asked.actions],
                "space": asked.space,
                "message": asked.message,
                "board": asked.board,
            }
            for number, asked in found
        ]


def _check(asked: Question, action: Any) -> None:
    who = "action" if asked.player_id is None else f"action of player {asked.player_id!r}"
    if asked.actions is not None and not any(
        # By type as well: true is no 1.
        type(action) is type(one.action) and action == one.action
        for one in asked.actions
    ):
        few = ", ".join(str(one.action) for one in asked.actions[:12])
        more = ", ..." if len(asked.actions) > 12 else ""
        raise ValueError(f"{who}: expected one of {few}{more}; got {str(action)[:_SHOWN]}")
    try:
        json.dumps(action, allow_nan=False)
        if asked.check is not None:
            asked.check(action)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{who}: {error}") from None
