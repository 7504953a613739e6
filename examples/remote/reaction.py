"""An agent for a server: in rock, paper, scissors, play what beats the opponent's last move.

parllel remote serve --port 8082 --environment rps --agent examples/remote/reaction.py
"""

from __future__ import annotations

from typing import Any


def agent(observation: Any) -> int:
    """Return the move that beats the opponent's last move, one-hot in the last three numbers."""
    last = observation.observation[3:]
    return (max(range(3), key=lambda move: last[move]) + 1) % 3
