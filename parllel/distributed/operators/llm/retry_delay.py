"""How long to wait before a request is made again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

_FIRST_S, _LONGEST_S = 0.5, 8.0


def asked_delay(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks a client to wait, by Retry-After; None if it does not say.

    headers: names in lower case. The value is a number of seconds or a date (RFC 9110, section 10.2.3).
    """
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except (TypeError, ValueError):
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        seconds = (when - datetime.now(timezone.utc)).total_seconds()
    # NaN is neither.
    return max(seconds, 0.0) if seconds == seconds else None


def own_delay(attempt: int) -> float:
    """Return the seconds to wait after attempt 0, 1, ...: longer each time, for each client another."""
    longest = min(_FIRST_S * 2.0 ** min(attempt, 30), _LONGEST_S)
    return longest * random.uniform(0.5, 1.0)
