"""Checks of what cages are told."""

from __future__ import annotations

from collections.abc import Sequence

from parllel.types import State


def check_row(t: int, rows: int, name: str) -> None:
    """Raise IndexError unless `t` is one of `rows`."""
    if not 0 <= t < rows:
        raise IndexError(f"{name}: row {t}: expected 0 to {rows - 1}")


def check_states(states: Sequence[State], n: int, name: str) -> None:
    """Raise ValueError unless there is a state for each of `n` environments."""
    if len(states) != n:
        raise ValueError(f"{name}: states: expected those of {n} environments, got {len(states)}")


def check_counts(counts: Sequence[int], n: int, name: str) -> None:
    """Raise ValueError unless there is a number of steps for each of `n` environments."""
    if len(counts) != n or min(counts) < 0:
        raise ValueError(f"{name}: counts: expected {n} of at least 0, got {list(counts)}")
