"""A board's state as JSON, including numbers that JSON lacks."""

from __future__ import annotations

import math
from typing import Any

from parllel.distributed.wire.json_text import json_bytes
from parllel.distributed.wire.wire_error import WireError


def state_bytes(values: Any) -> bytes:
    """Encode JSON values. Numbers that JSON lacks (NaN, infinities) become null."""
    try:
        return json_bytes(values)
    except WireError:
        # Rare: an environment returned such a reward. Only then are all values searched.
        return json_bytes(_finite(values))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
