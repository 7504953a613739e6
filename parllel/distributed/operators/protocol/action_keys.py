"""The keys by which a person chooses among discrete actions, at a terminal and on a page."""

from __future__ import annotations

import string
from collections.abc import Sequence

# Given to actions from the first on; q and x are left free, as many programs end by them.
KEYS = string.digits + "abcdefghijklmnoprstuvwyz"
_ARROWS = {"left": "left", "right": "right", "up": "up", "forward": "up", "down": "down"}


def action_keys(n: int, start: int = 0, names: Sequence[str] | None = None) -> dict[str, int]:
    """Return the action of each key: 0-9, then letters, for as many actions as there are keys.

    Those that the environment calls left, right, up, forward or down have the arrows too.

    n, start: of the Discrete space.
    names: of its actions, in their order.
    """
    keys = {key: start + i for i, key in enumerate(KEYS[:n])}
    for i, name in enumerate((names or ())[:n]):
        arrow = _ARROWS.get(name.lower())
        if arrow is not None:
            keys.setdefault(arrow, start + i)
    return keys
