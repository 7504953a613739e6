"""Environments that do not offer their state, in what samplers save."""

from __future__ import annotations

from collections.abc import Sequence

from parllel.types import State

# What stands for the state of an environment of which none was kept.
NO_STATE: State = {"env": None, "action_space": None}


def count_unsaved(states: Sequence[State]) -> dict[str, int]:
    """Return how many environments have no state, by the name of what does not offer its own."""
    names = [str(one.get("missing")) for one in states if one["env"] is None]
    return {name: names.count(name) for name in sorted(set(names))}
