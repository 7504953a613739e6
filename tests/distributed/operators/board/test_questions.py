from __future__ import annotations

import math
import threading
from contextlib import contextmanager

import pytest

from parllel.distributed.operators.board.questions import Questions
from parllel.distributed.operators.protocol.choosing import OfferedAction, Question
from parllel.errors import WrongStateError

LONG_S = 20.0
COINS = Question(
    "a", None, [OfferedAction(0, "heads", ["0"]), OfferedAction(1, "tails", ["1"])], "Discrete(2)"
)
NUMBER = Question("b", "how many?", None, "Box(1,)")


class Asking:
    """Questions, asked by a thread of their own."""

    def __init__(self):
        self.opened = threading.Event()
        self.questions = Questions(self._changed)
        self.outcome = None

    def _changed(self):
        if self.questions.is_open:
            self.opened.set()

    @contextmanager
    def ask(self, *asked, look=lambda: None):
        def run():
            try:
                self.outcome = self.questions.ask(asked, look)
            except Exception as error:
                self.outcome = error

        self.opened.clear()
        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert self.opened.wait(LONG_S)
            yield [one["number"] for one in self.questions.as_json()]
        finally:
            thread.join(LONG_S)
            assert not thread.is_alive()


def test_all_questions_of_a_step_are_open_until_each_is_answered():
    asking = Asking()
    with asking.ask(COINS, NUMBER) as (first, second):
        coins, number = asking.questions.as_json()
        assert coins["actions"][1] == {"action": 1, "name": "tails", "keys": ["1"]}
        assert (number["player_id"], number["text"], number["actions"]) == ("b", "how many?", None)
        asking.questions.answer(second, [0.5])
        assert [one["number"] for one in asking.questions.as_json()] == [first]
        with pytest.raises(WrongStateError, match=f"question {second} is no longer open"):
            asking.questions.answer(second, [0.7])
        asking.questions.answer(first, 1)
    assert asking.outcome == [1, [0.5]]
    assert not asking.questions.is_open


def test_a_number_is_given_once():
    asking = Asking()
    with asking.ask(COINS) as (first,):
        asking.questions.answer(first, 0)
    with asking.ask(COINS) as (second,):
        assert second != first
        with pytest.raises(WrongStateError, match=rf"answer one of \[{second}\]"):
            asking.questions.answer(first, 1)
        asking.questions.answer(second, 0)
    assert asking.outcome == [0]
    with pytest.raises(WrongStateError, match="answer one of the next, when it is asked"):
        asking.questions.answer(second, 1)


@pytest.mark.parametrize("action", [2, True, 1.0, "1", None, [1]])
def test_what_is_not_offered_is_refused_and_the_question_stays(action):
    asking = Asking()
    with asking.ask(COINS) as (number,):
        with pytest.raises(ValueError, match=r"player 'a': expected one of 0, 1; got "):
            asking.questions.answer(number, action)
        asking.questions.answer(number, 1)
    assert asking.outcome == [1]


def test_what_is_typed_is_checked_by_what_knows_the_game():
    def check(action):
        if action != [1]:
            raise ValueError("expected [1]")

    asking = Asking()
    with asking.ask(NUMBER._replace(check=check)) as (number,):
        with pytest.raises(ValueError, match=r"action of player 'b': expected \[1\]"):
            asking.questions.answer(number, [2])
        with pytest.raises(ValueError, match="action of player 'b': Out of range float"):
            asking.questions.answer(number, [math.nan])
        asking.questions.answer(number, [1])
    assert asking.outcome == [[1]]


def test_what_was_withdrawn_is_not_played_and_asks_no_more_until_admitted():
    asking = Asking()
    error = RuntimeError("reset")
    with asking.ask(COINS, NUMBER) as (first, second):
        asking.questions.answer(first, 1)
        asking.questions.withdraw(error)
        with pytest.raises(WrongStateError, match="is no longer open"):
            asking.questions.answer(second, [1])
    assert asking.outcome is error
    with pytest.raises(RuntimeError, match="reset"):
        asking.questions.ask([COINS])
    assert asking.questions.as_json() == []
    asking.questions.admit()
    with asking.ask(COINS) as (number,):
        asking.questions.answer(number, 0)
    assert asking.outcome == [0]


def test_what_looks_on_can_end_the_wait():
    def look():
        raise OSError("the worker has died")

    asking = Asking()
    with asking.ask(COINS, look=look):
        pass
    assert str(asking.outcome) == "the worker has died"
    assert not asking.questions.is_open


def test_of_many_answers_to_one_question_one_is_taken():
    asking = Asking()
    taken = []
    barrier = threading.Barrier(8)

    def answer(number, action):
        barrier.wait(LONG_S)
        try:
            asking.questions.answer(number, action)
        except WrongStateError:
            return
        taken.append(action)

    with asking.ask(COINS) as (number,):
        threads = [threading.Thread(target=answer, args=(number, i % 2)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
    assert asking.outcome == taken
    assert len(taken) == 1
