"""Actions of environments, compared bit by bit."""

from __future__ import annotations

import numpy as np


def same(one, other):
    """Return whether two actions have the same types, dtypes and bits."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is not np.ndarray:
        return type(one) is type(other) and one == other
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )
