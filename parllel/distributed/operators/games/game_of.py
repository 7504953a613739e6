"""Which kind of game an environment is."""

from __future__ import annotations

from typing import Any

from parllel.distributed.operators.games.game import Game
from parllel.distributed.operators.games.sequential_game import SequentialGame
from parllel.distributed.operators.games.simultaneous_game import SimultaneousGame


def game_of(env: Any) -> Game:
    """Return an environment of PettingZoo's interface as a game, which closes it."""
    # What only AEC environments have; wrappers pass it on.
    return SequentialGame(env) if hasattr(env, "agent_iter") else SimultaneousGame(env)
