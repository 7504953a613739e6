"""What goes wrong between a client and the server of a language model."""

from __future__ import annotations

from typing import Any

from parllel.distributed.operators.workers.worker_agent import Decision
from parllel.errors import ParllelError


class LlmError(ParllelError, RuntimeError):
    """The server gave no answer; the text holds no key.

    Attributes:
        status: of the reply, None if none came.
        answer: an Answer that cannot be used, but was paid for; None if there is none.
        decision: what was answered before, with its tokens; None if nothing was.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.answer: Any = None
        self.decision: Decision | None = None


class BudgetError(LlmError):
    """The token budget is used up; nothing was sent."""
