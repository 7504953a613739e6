"""The one request of a cage that its worker has not answered yet.

    this process                              worker
    (the process starts)                      makes the environment
    done, handles, take       <-------------  first words: the spaces
    begin: kind, number       ------------->  reads, works
    done, handles             <- - - - - - -  the pipe is readable, or the process has ended
    take                      <-------------  the reply with that number

Replies to calls that Ctrl-C interrupted come before it, and are dropped: the worker answers in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from parllel.buffers.conversation import FIRST_WORDS, Conversation
from parllel.cages.cage_interface import PendingRow
from parllel.errors import WrongStateError
from parllel.system.processes.several import Handle

MADE = "made"


class PendingRequest(PendingRow):
    """What was asked of a worker, until its answer is taken; at first that the environment is made.

    Attributes:
        kind: tells which method waits for the answer; None if nothing is pending.
    """

    __slots__ = ("_conversation", "_number", "_outcome", "_what", "kind")

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.kind: str | None = MADE
        self._what, self._number = "", FIRST_WORDS
        # What `done` had to read to know that it is the answer.
        self._outcome: bytes | Exception | None = None

    def begin(self, kind: str, what: str, number: int) -> None:
        """Note what the worker was sent; `what` is for messages."""
        self.kind, self._what, self._number = kind, what, number

    def expect(self, kinds: Sequence[str], otherwise: str) -> None:
        """Raise WrongStateError unless what is pending is of these kinds, ClosedError after the end."""
        conversation = self._conversation
        # What broke the conversation may be the outcome, which `take` raises; `close` clears the error.
        if self._outcome is None or conversation.error is None:
            conversation.check_open()
        if self.kind not in kinds:
            raise WrongStateError(f"{conversation.child.name}: {otherwise}")

    def refuse(self, method: str) -> None:
        """Raise WrongStateError if anything is pending."""
        # The worker takes one request at a time; a second one would write rows that the first still uses.
        if self.kind is not None:
            name = self._conversation.child.name
            raise WrongStateError(f"{name}: {method}: {self._what} is not finished")

    def done(self) -> bool:
        """Return whether the worker has answered, or has ended."""
        conversation = self._conversation
        if self._outcome is None and not conversation.is_next(self._number):
            # An interrupted call may be answered first: that a reply is there says nothing yet.
            try:
                self._outcome = conversation.receive(self._number, self._doing, now=True) or None
            except Exception as error:
                self._outcome = error
            return self._outcome is not None
        return self._outcome is not None or conversation.child.poll()

    def handles(self) -> Sequence[Handle]:
        """Return what is ready when the worker has answered, or has ended."""
        return self._conversation.child.handles() if self._outcome is None else ()

    def take(self) -> bytes:
        """Wait for the reply, and return it; after Ctrl-C it can be waited for again.

        Raises: as `Conversation.receive` does.
        """
        reply = self._outcome
        try:
            if reply is None:
                reply = self._conversation.receive(self._number, self._doing)
            elif isinstance(reply, Exception):
                raise reply
        except Exception:
            # It answers the request, or the worker has ended. KeyboardInterrupt does neither.
            self.kind = self._outcome = None
            raise
        self.kind = self._outcome = None
        return reply

    @property
    def _doing(self) -> str:
        return "while it was made" if self.kind == MADE else f"during {self._what}"
