"""Environments of PettingZoo's interface by the names of their modules."""

from __future__ import annotations

import importlib
import warnings

from parllel.remote.games.pettingzoo_game import PettingZooGame
from parllel.remote.games.together_game import TogetherGame
from parllel.remote.games.turns_game import TurnsGame


def pettingzoo_game(name: str) -> PettingZooGame:
    """Return the game of a module, such as "pettingzoo/classic/tictactoe_v3" or "mpe2/simple_spread_v3".

    A module that has both kinds of environment is played as a parallel one.

    Raises:
        ValueError: if there is no such module, or no environment in it.
        ImportError: if its library is not installed.
    """
    library = name.partition("/")[0]
    try:
        importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"environment {name!r}: needs {library}: pip install 'parllel[multiagent]'",
            name=library,
        ) from error
    module_name = name.replace("/", ".")
    try:
        with warnings.catch_warnings():
            # PettingZoo 1.27 has a registry, which other libraries and earlier versions do not.
            warnings.simplefilter("ignore", DeprecationWarning)
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(f"environment {name!r}: there is no module {module_name}") from None
        raise ImportError(f"environment {name!r}: needs {error.name}", name=error.name) from error
    if callable(getattr(module, "parallel_env", None)):
        return TogetherGame(name, module.parallel_env)
    if callable(getattr(module, "env", None)):
        return TurnsGame(name, module.env)
    raise ValueError(f"environment {name!r}: {module_name} has neither parallel_env nor env")
