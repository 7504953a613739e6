"""The unanswered request of a ProcessCage to its worker; there is at most one.

    this process                              worker
    (the process starts)                      makes the environment
    done, handles, take       <-------------  first words: the spaces
    begin: kind, number       ------------->  reads, works
    done, handles             <- - - - - - -  the pipe is readable, or the process has ended
    take                      <-------------  the reply with that number

Replies to calls that Ctrl-C interrupted arrive before it and are dropped: the worker answers in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from parllel.buffers.conversation import FIRST_WORDS, Conversation
from parllel.cages.cage_interface import PendingRow
from parllel.errors import WrongStateError
from parllel.system.processes.several import Handle

MADE = "made"


class PendingRequest(PendingRow):
    """The pending request to a worker, until its answer is taken. The first request makes the environment.

    Attributes:
        kind: kind of the request, which determines the method that accepts the answer; None if
            idle.
    """

    __slots__ = ("_conversation", "_number", "_outcome", "_what", "kind")

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.kind: str | None = MADE
        self._what, self._number = "", FIRST_WORDS
        # The answer or exception, if `done` had to read it.
        self._outcome: bytes | Exception | None = None

    def begin(self, kind: str, what: str, number: int) -> None:
        """Record a request that was sent; `what` names it in messages."""
        self.kind, self._what, self._number = kind, what, number

    def expect(self, kinds: Sequence[str], otherwise: str) -> None:
        """Check that a request of one of these kinds is pending.

        Raises WrongStateError, or ClosedError once closed.
        """
        conversation = self._conversation
        # If `done` has read the error that broke the conversation, `take` raises it; `close` clears it.
        if self._outcome is None or conversation.error is None:
            conversation.check_open()
        if self.kind not in kinds:
            raise WrongStateError(f"{conversation.child.name}: {otherwise}")

    def refuse(self, method: str) -> None:
        """Check that no request is pending. Raises WrongStateError."""
        # The worker handles one request at a time; a second one could write rows that the first still uses.
        if self.kind is not None:
            name = self._conversation.child.name
            raise WrongStateError(f"{name}: {method}: {self._what} is not finished")

    def done(self) -> bool:
        """Return whether the worker has answered or ended."""
        conversation = self._conversation
        if self._outcome is None and not conversation.is_next(self._number):
            # The reply in the pipe may belong to an interrupted call, so it is read to find out.
            try:
                # Empty if only replies to interrupted calls have arrived so far.
                self._outcome = conversation.receive(self._number, self._doing, now=True) or None
            except Exception as error:
                self._outcome = error
            return self._outcome is not None
        # A readable pipe is enough: nothing but this reply, or the worker's exception, can be next.
        return self._outcome is not None or conversation.child.poll()

    def handles(self) -> Sequence[Handle]:
        """Return handles that become ready when the worker answers or ends."""
        return self._conversation.child.handles() if self._outcome is None else ()

    def take(self) -> bytes:
        """Wait for the reply and return it. After Ctrl-C it can be awaited again.

        Raises the errors of `Conversation.receive`.
        """
        reply = self._outcome
        try:
            if reply is None:
                reply = self._conversation.receive(self._number, self._doing)
            elif isinstance(reply, Exception):
                raise reply
        except Exception:
            # Either an answer to the request or the worker's end. A KeyboardInterrupt is neither.
            self.kind = self._outcome = None
            raise
        self.kind = self._outcome = None
        return reply

    @property
    def _doing(self) -> str:
        return "while it was made" if self.kind == MADE else f"during {self._what}"
