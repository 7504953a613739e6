"""Tokens of language models, and how many of their decisions were understood, from replies to records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.distributed.operators.workers.worker_agent import COUNTS


class DecisionCounts:
    """Copy what replies say of decisions into records, and add it up.

    Attributes:
        sums: of the counts that came, by name; `decisions`, of a language model, and how many of these were
            `understood`. Empty of what is no language model.
    """

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    def note(self, reply: Mapping[str, Any], record: dict[str, Any]) -> None:
        """Put what a reply says of its decision into the record of its step."""
        for name in COUNTS:
            count = reply.get(name)
            if count is not None:
                record[name] = count
                self._add(name, int(count))
        understood = reply.get("understood")
        if understood is not None:
            record["understood"] = understood
            self._add("decisions", 1)
            self._add("understood", int(understood))
        if reply.get("answers") is not None:
            record["answers"] = reply["answers"]

    def unplayed(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of a decision that was not played, as its episode failed; {} if there is none."""
        record: dict[str, Any] = {}
        self.note(reply, record)
        if record and reply.get("raw") is not None:
            record["raw"] = reply["raw"]
        return record

    def _add(self, name: str, count: int) -> None:
        self.sums[name] = self.sums.get(name, 0) + count
