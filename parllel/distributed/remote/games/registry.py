"""Registry of games by name."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

from parllel.distributed.remote.games.connectx import ConnectX
from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.rps import RockPaperScissors

_NAME = re.compile(r"[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*")
# Prefixes of names of other libraries' environments, with the function that adapts them to games.
_FAMILIES = {
    "gymnasium": ("parllel.distributed.remote.games.gymnasium_game", "gymnasium_game"),
    "pettingzoo": ("parllel.distributed.remote.games.pettingzoo_game", "pettingzoo_game"),
    "mpe2": ("parllel.distributed.remote.games.pettingzoo_game", "pettingzoo_game"),
}
_games: dict[str, Callable[[], Game]] = {"rps": RockPaperScissors, "connectx": ConnectX}


def register(name: str, game: Callable[[], Game]) -> None:
    """Register a game.

    A game of the same name is replaced.

    Args:
        name: letters, digits and `_.+-`, with `/` in between.
        game: a subclass of `Game`, or a function that returns a Game. It is called for each
            environment.

    Raises:
        ValueError: for an invalid name, or one reserved for environments of other libraries.
        TypeError: if `game` is not callable.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"register: expected a name of letters, digits and _.+-, got {name!r}")
    if name.partition("/")[0] in _FAMILIES:
        raise ValueError(
            f"register: expected a name without the prefix of another library, got {name!r}"
        )
    if not callable(game):
        raise TypeError(f"register: {name}: expected a class derived from Game, got {game!r}")
    _games[name] = game


def environments() -> list[str]:
    """Return the names of all registered games, sorted."""
    return sorted(_games)


def new_game(name: str) -> Game:
    """Create a game by name. A name with a colon imports a module or executes a file.

    Raises:
        ValueError: for an unknown game, or an environment unknown to its library.
        FileNotFoundError: for a function in a file that does not exist.
        ImportError: if its library is not installed. Names the extra.
    """
    if name in _games:
        game = _games[name]()
        if not isinstance(game, Game):
            raise TypeError(f"{name}: expected a Game, got {game!r}")
        return game
    family, _, rest = name.partition("/")
    # Names of gymnasium's environments are validated by their own parser.
    if rest and family in _FAMILIES and (family == "gymnasium" or _NAME.fullmatch(name)):
        module, function = _FAMILIES[family]
        made: Game = getattr(importlib.import_module(module), function)(name)
        return made
    known = ", ".join(environments())
    raise ValueError(
        f"environment {name!r}: expected {known}, gymnasium/NAME, pettingzoo/MODULE, mpe2/MODULE, "
        "or a name that one of your modules registers (--import MODULE)"
    )


def import_module_of_user(module: str) -> None:
    """Import a module that registers games: `package.module`, also from the current folder, or a file.

    Raises:
        ImportError: if there is no such module.
        FileNotFoundError: if there is no such file.
    """
    path = Path(module)
    if path.suffix == ".py":
        if not path.is_file():
            raise FileNotFoundError(f"--import {module}: no such file")
        folder, name = str(path.resolve().parent), path.stem
    else:
        folder, name = str(Path.cwd()), module
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        imported = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a module that this one imports is missing
        raise ImportError(f"--import {module}: no such module", name=error.name) from None
    if path.suffix == ".py" and Path(str(imported.__file__)).resolve() != path.resolve():
        raise ImportError(
            f"--import {module}: a module named {name} is already imported, from {imported.__file__}"
        )
