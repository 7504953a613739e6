"""Tokens of language models, from replies to records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.operators.worker_agent import COUNTS


class TokenCounts:
    """Copy the counts of replies into records, and add them up.

    Attributes:
        sums: by name, of the counts that came.
    """

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    def note(self, reply: Mapping[str, Any], record: dict[str, Any]) -> None:
        """Put the counts of a reply into the record of its step."""
        for name in COUNTS:
            count = reply.get(name)
            if count is not None:
                record[name] = count
                self.sums[name] = self.sums.get(name, 0) + int(count)
