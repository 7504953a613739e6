"""Rewards as environments return them."""

from __future__ import annotations

from typing import Any


def reward_of(reward: Any, *of: str) -> float:
    """Convert a reward to float.

    of: name of the environment, and of the agent if there are several, for the error message.

    Raises:
        TypeError: if the reward is not a single number.
    """
    try:
        return float(reward)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(
            f"{': '.join(of)}: reward: expected a number, got {reward!r:.200}"
        ) from None
