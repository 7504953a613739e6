"""Errors of clients of language models."""

from __future__ import annotations

from typing import Any

from parllel.distributed.operators.workers.worker_agent import Decision
from parllel.errors import ParllelError


class LlmError(ParllelError, RuntimeError):
    """Raised if the server gives no answer. The text never contains the key.

    Attributes:
        status: HTTP status of the reply. None if there was no reply.
        answer: an unusable Answer that was nevertheless paid for, or None.
        decision: earlier answers of the same decision, with their tokens. None if there were none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.answer: Any = None
        self.decision: Decision | None = None


class BudgetError(LlmError):
    """Raised if the token budget is used up. No request was sent."""
