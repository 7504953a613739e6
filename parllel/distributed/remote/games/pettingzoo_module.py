"""Environments of PettingZoo's interface by the names of their modules."""

from __future__ import annotations

from parllel.distributed.remote.games.pettingzoo_game import PettingZooGame
from parllel.distributed.remote.games.together_game import TogetherGame
from parllel.distributed.remote.games.turns_game import TurnsGame
from parllel.envs.pettingzoo_module import pettingzoo_maker


def pettingzoo_game(name: str) -> PettingZooGame:
    """Return the game of a module, such as "pettingzoo/classic/tictactoe_v3" or "mpe2/simple_spread_v3".

    A module that has both kinds of environment is played as a parallel one.

    Raises:
        ValueError: if there is no such module, or no environment in it.
        ImportError: if its library is not installed.
    """
    found = pettingzoo_maker(name)
    return TogetherGame(name, found.make) if found.parallel else TurnsGame(name, found.make)
