"""An agent for a server: play what beats the other's last move in rock, paper, scissors.

parllel remote serve --port 8082 --environment rps --agent examples/remote/reaction.py
"""

from __future__ import annotations

from typing import Any


def agent(observation: Any) -> int:
    """Return the move that beats the last one of the other player, whose numbers are the last three."""
    last = observation.observation[3:]
    return (max(range(3), key=lambda move: last[move]) + 1) % 3
