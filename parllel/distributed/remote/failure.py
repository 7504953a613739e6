"""Failures of agents as values, in place of an action."""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST = 1000  # characters of a reason


@dataclass(frozen=True)
class AgentFailure:
    """Reason why an agent has no action.

    Attributes:
        status: status of the agent in its episode: "ERROR", "TIMEOUT" or, for an invalid action,
            "INVALID".
        reason: one line of at most 1,000 characters, without secrets.
    """

    status: str
    reason: str

    def __post_init__(self) -> None:
        if self.status not in ("ERROR", "TIMEOUT", "INVALID"):
            raise ValueError(f"status: expected ERROR, TIMEOUT or INVALID, got {self.status!r}")
        # No lone surrogates, which no wire format can send, and one line only, as more could forge log
        # entries.
        line = " ".join(self.reason[: 2 * _LONGEST].split())
        text = line.encode("utf-8", "backslashreplace").decode()
        cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
        object.__setattr__(self, "reason", cut)
