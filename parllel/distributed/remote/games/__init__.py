"""Games: what they are, those that are shipped, and environments of other libraries as games."""

from parllel.distributed.remote.games.connectx import ConnectX
from parllel.distributed.remote.games.episode import Episode
from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.position import Position, Seat
from parllel.distributed.remote.games.registry import (
    environments,
    import_module_of_user,
    new_game,
    register,
)
from parllel.distributed.remote.games.rps import RockPaperScissors
from parllel.distributed.remote.games.specification import Specification

__all__ = [
    "ConnectX",
    "Episode",
    "Game",
    "Position",
    "RockPaperScissors",
    "Seat",
    "Specification",
    "environments",
    "import_module_of_user",
    "new_game",
    "register",
]
