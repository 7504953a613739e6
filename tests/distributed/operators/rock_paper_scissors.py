"""A game that players name by this file."""

from __future__ import annotations

from parllel.testing import RockPaperScissorsEnv


def game():
    """Return the game."""
    return RockPaperScissorsEnv()
