"""Questions to people at one card of a board, and their answers.

    the card's thread     ask: opens questions, waits until each has its answer
    any other thread      answer: one of them; withdraw: all of them; as_json: shows those that are open
    own lock              over the open questions. Answers are checked under it, against state of the card's
                          thread, which cannot go on and change that state before it gets the lock itself
    the board's lock      may be held when this one is taken, never the other way round: `changed` takes it,
                          and is called without this one

Numbers are never reused: a late answer finds its question gone, and is never taken for another's.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from parllel.distributed.operators.protocol.choosing import Question
from parllel.errors import WrongStateError

_LOOK_S = 1.0  # between calls of `look` while people think
_SHOWN = 100  # characters of an answer in error messages


class Questions:
    """Asks people and waits for their answers, without a time limit.

    Args:
        changed: function called without the lock after questions were opened, answered or
            withdrawn.
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
        # Without the lock: called from `changed` with the board's lock held. Reading one dict is atomic.
        return bool(self._open)

    def ask(self, asked: Sequence[Question], look: Callable[[], None] = lambda: None) -> list[Any]:
        """Open questions, wait for all answers, and return them in the same order.

        Args:
            asked: the questions, opened together.
            look: function called about once a second. If it raises, the questions are withdrawn and
                the exception is passed on.

        Raises:
            Exception: the exception passed to `withdraw`.
        """
        with self._condition:
            # Opened even if withdrawn already: `_are_answered` raises then, and `finally` closes them.
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
        """Wait a while for the answers to these questions. Returns whether all are there."""

        def is_over() -> bool:
            return self._withdrawn is not None or all(n in self._answers for n in numbers)

        with self._condition:
            over = self._condition.wait_for(is_over, _LOOK_S)
            # Before the answers: an answer given just before a reset must not be played.
            if self._withdrawn is not None:
                raise self._withdrawn
            return over

    def answer(self, number: int, action: Any) -> None:
        """Answer a question.

        Args:
            number: number of the question, as in `as_json`.
            action: the choice, as JSON values.

        Raises:
            WrongStateError: if the question is not open, because it was answered or withdrawn.
            ValueError: for a choice that is not possible; the question stays open.
        """
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"number: expected the number of a question, got {number!r}")
        with self._condition:
            asked = self._open.get(number)
            if asked is None or self._withdrawn is not None:
                raise WrongStateError(
                    f"question {number!r} is no longer open; answer one of "
                    f"{list(self._open) or 'the next, when it is asked'}"
                )
            _check(asked, action)
            self._answers[number] = action
            del self._open[number]  # at once, so that the second of two answers is refused
            self._condition.notify_all()
        self._changed()

    def withdraw(self, error: Exception) -> None:
        """Withdraw all questions.

        A waiting `ask` raises `error` immediately, and each later `ask` raises it until `admit`.
        """
        with self._condition:
            self._withdrawn = error
            self._open.clear()
            self._condition.notify_all()
        self._changed()

    def admit(self) -> None:
        """Allow `ask` again after `withdraw`."""
        with self._condition:
            self._withdrawn = None

    def as_json(self) -> list[dict[str, Any]]:
        """Return the open questions in the order of their numbers."""
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
        # The type too: JSON's true equals 1 in Python.
        type(action) is type(offered.action) and action == offered.action
        for offered in asked.actions
    ):
        few = ", ".join(str(offered.action) for offered in asked.actions[:12])
        more = ", ..." if len(asked.actions) > 12 else ""
        raise ValueError(f"{who}: expected one of {few}{more}; got {str(action)[:_SHOWN]}")
    try:
        json.dumps(action, allow_nan=False)
        if asked.check is not None:
            asked.check(action)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{who}: {error}") from None
