"""Errors of clients of language models."""

from __future__ import annotations

from typing import Any

from parllel.distributed.operators.workers.worker_agent import Decision
from parllel.errors import ParllelError


class LlmError(ParllelError, RuntimeError):
    """Raised if the server gives no answer. The text never contains the key.

    Attributes:
        status: of the reply; None if there was none.
        answer: an unusable Answer that was nevertheless paid for, or None.
        decision: what was answered before, with its tokens; None if nothing was.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.answer: Any = None
        self.decision: Decision | None = None


class BudgetError(LlmError):
    """Raised if the token budget is used up; nothing was sent."""
