"""A board's state as JSON, whatever numbers an environment gives."""

from __future__ import annotations

import math
from typing import Any

from parllel.distributed.wire.json_text import json_bytes
from parllel.distributed.wire.wire_error import WireError


def state_bytes(values: Any) -> bytes:
    """Return JSON values as bytes; numbers that JSON lacks (NaN, infinities) are null."""
    try:
        return json_bytes(values)
    except WireError:
        # Rare: an environment that gives such a reward. All values are looked at for it alone.
        return json_bytes(_finite(values))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value
