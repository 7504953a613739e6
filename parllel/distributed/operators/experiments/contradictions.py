"""What a worker says of an episode, compared with what was counted: the counts stand."""

from __future__ import annotations

import json
import math
from typing import Any

# Sums of float32, or in another order, differ by less.
_TOLERANCE = 1e-4


class Contradictions:
    """The differences of one episode, at most one for each field.

    Attributes:
        said: a sentence for each.
    """

    def __init__(self) -> None:
        self._by_field: dict[str, str] = {}

    @property
    def said(self) -> tuple[str, ...]:
        """A sentence for each contradiction so far."""
        return tuple(self._by_field.values())

    def note(self, field: str, said: Any, counted: Any, source: str = "counted") -> None:
        """Note what a worker says of a field if it is something else than what was counted.

        said: None if it says nothing.
        source: where the other value comes from.
        """
        if said is None or said == counted or field in self._by_field:
            return
        if isinstance(counted, float) and math.isclose(
            said, counted, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE
        ):
            return
        self._by_field[field] = f"its worker says {field} {_text(said)}, {source} {_text(counted)}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)[:100]
