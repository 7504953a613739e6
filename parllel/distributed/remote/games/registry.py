"""Which games there are, by name."""

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
# Names that begin so stand for environments of other libraries, of which this function makes games.
_FAMILIES = {
    "gymnasium": ("parllel.distributed.remote.games.gymnasium_game", "gymnasium_game"),
    "pettingzoo": ("parllel.distributed.remote.games.pettingzoo_game", "pettingzoo_game"),
    "mpe2": ("parllel.distributed.remote.games.pettingzoo_game", "pettingzoo_game"),
}
_games: dict[str, Callable[[], Game]] = {"rps": RockPaperScissors, "connectx": ConnectX}


def register(name: str, game: Callable[[], Game]) -> None:
    """Make a game known by a name.

    name: letters, digits and `_.+-`, with `/` between them. A name that is taken is replaced.
    game: a class derived from `Game`, or a function that makes one. It is called for each environment.

    Raises:
        ValueError: for another name, or one that stands for environments of other libraries.
        TypeError: if `game` cannot be called.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"register: expected a name of letters, digits and _.+-, got {name!r}")
    if name.partition("/")[0] in _FAMILIES:
        raise ValueError(f"register: {name!r} stands for an environment of another library")
    if not callable(game):
        raise TypeError(f"register: {name}: expected a class derived from Game, got {game!r}")
    _games[name] = game


def environments() -> list[str]:
    """Return the names of all games that are registered, sorted."""
    return sorted(_games)


def new_game(name: str) -> Game:
    """Return a new game of this name; one with a colon says which module is imported or file executed.

    Raises:
        ValueError: if there is none, or its library knows no such environment.
        FileNotFoundError: if it is a function of a file that is not there.
        ImportError: if its library is not installed; names the extra.
    """
    if name in _games:
        game = _games[name]()
        if not isinstance(game, Game):
            raise TypeError(f"{name}: expected a Game, got {game!r}")
        return game
    family, _, rest = name.partition("/")
    # What gymnasium's may be, its own reader says.
    if rest and family in _FAMILIES and (family == "gymnasium" or _NAME.fullmatch(name)):
        module, function = _FAMILIES[family]
        made: Game = getattr(importlib.import_module(module), function)(name)
        return made
    known = ", ".join(environments())
    raise ValueError(
        f"environment {name!r}: expected {known}, gymnasium/NAME, pettingzoo/MODULE, mpe2/MODULE, or one "
        "that a module of yours registers (--import MODULE)"
    )


def import_module_of_user(module: str) -> None:
    """Import a module that registers games: `package.module`, found from the current folder too, or a file.

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
            raise  # of what the module itself imports
        raise ImportError(f"--import {module}: no such module", name=error.name) from None
    if path.suffix == ".py" and Path(str(imported.__file__)).resolve() != path.resolve():
        raise ImportError(
            f"--import {module}: a module called {name} is imported already, from {imported.__file__}"
        )
