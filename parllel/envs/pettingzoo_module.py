"""Environments of PettingZoo's interface by the names of their modules."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from parllel.errors import install_command


class PettingZooMaker(NamedTuple):
    """What makes an environment of PettingZoo's interface.

    make: takes the environment's arguments by name.
    parallel: whether its agents act at the same time; else one acts after the other.
    """

    make: Callable[..., Any]
    parallel: bool


def pettingzoo_maker(name: str) -> PettingZooMaker:
    """Return what a module makes, such as "pettingzoo/classic/chess_v6" or "mpe2/simple_spread_v3".

    Of a module that has both kinds of environment it is the parallel one.

    Raises:
        ValueError: if there is no such module, or no environment in it.
        ImportError: if its library is not installed.
    """
    module = _module_named(name)
    if callable(getattr(module, "parallel_env", None)):
        return PettingZooMaker(module.parallel_env, parallel=True)
    if callable(getattr(module, "env", None)):
        return PettingZooMaker(module.env, parallel=False)
    raise ValueError(f"environment {name!r}: {module.__name__} has neither parallel_env nor env")


def action_mask_of(*places: Any) -> list[int] | None:
    """Return the first `action_mask` in these mappings, as 0 and 1; None if there is none."""
    for place in places:
        if isinstance(place, Mapping) and "action_mask" in place:
            mask: list[int] = np.asarray(place["action_mask"]).reshape(-1).astype(int).tolist()
            return mask
    return None


def _module_named(name: str) -> ModuleType:
    library = name.partition("/")[0]
    try:
        root = importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"environment {name!r}: needs {library}: {install_command('multiagent')}",
            name=library,
        ) from error
    module_name = name.replace("/", ".")
    try:
        with warnings.catch_warnings():
            # PettingZoo 1.27 has a registry, which other libraries and earlier versions do not.
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(
                f"environment {name!r}: there is no module {module_name}{_hint(root, name)}"
            ) from None
        raise ImportError(f"environment {name!r}: needs {error.name}", name=error.name) from error


def _hint(root: ModuleType, name: str) -> str:
    """Return where a module of that name is, as people leave out the family: pettingzoo/chess_v6."""
    last = name.rpartition("/")[2]
    for family in pkgutil.iter_modules(getattr(root, "__path__", [])):
        folders = [f"{folder}/{family.name}" for folder in root.__path__]
        if family.ispkg and any(module.name == last for module in pkgutil.iter_modules(folders)):
            return f"; did you mean {root.__name__}/{family.name}/{last}?"
    return ""
