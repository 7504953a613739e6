"""People who answer questions by a function, in a thread of their own, for tests."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from parllel.distributed.operators.board.questions import Questions
from parllel.errors import WrongStateError

LONG_S = 30.0


class People:
    """Questions, and the thread that answers them.

    choose: returns the answer to a question, as the board shows it.
    """

    def __init__(self, choose):
        self.questions = Questions(self._changed)
        self.asked, self.error = [], None
        self._choose = choose
        self._news = threading.Event()
        self._ended = False

    def _changed(self):
        self._news.set()

    def _answer_all(self):
        while True:
            assert self._news.wait(LONG_S)
            self._news.clear()
            if self._ended:
                return
            for question in self.questions.as_json():
                try:
                    self.asked.append(question)
                    self.questions.answer(question["number"], self._choose(question))
                except WrongStateError:
                    pass  # withdrawn meanwhile
                except Exception as error:
                    self.error = error
                    self.questions.withdraw(error)

    @contextmanager
    def answering(self):
        """Yield what asks them."""
        thread = threading.Thread(target=self._answer_all)
        thread.start()
        try:
            yield self.questions.ask
        finally:
            self._ended = True
            self._news.set()
            thread.join(LONG_S)
            assert not thread.is_alive()
