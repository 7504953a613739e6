"""Rewards as environments return them."""

from __future__ import annotations

from typing import Any


def reward_of(reward: Any, *of: str) -> float:
    """Return a reward as a float.

    of: what the message calls the environment, and the agent where there are several.

    Raises:
        TypeError: unless it is one number.
    """
    try:
        return float(reward)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(
            f"{': '.join(of)}: reward: expected a number, got {reward!r:.200}"
        ) from None
