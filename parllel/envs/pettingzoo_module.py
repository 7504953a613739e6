"""Look-up of PettingZoo environments by module name."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from parllel.errors import install_command

LIBRARIES = ("pettingzoo", "mpe2")  # libraries with environments of PettingZoo's interface
# Modules with an environment have a version in their name; other modules do not.
_VERSIONED = re.compile(r"\w+_v\d+")
_NO_FAMILIES = ("test", "utils")


def pettingzoo_maker(name: str) -> Callable[..., Any]:
    """Return the factory of an environment such as "pettingzoo/classic/chess_v6" or "mpe2/simple_spread_v3".

    It accepts the environment's arguments by name. If the module has both interfaces, it makes the parallel
    environment.

    Raises:
        ValueError: for a name that is not in `pettingzoo_names`, or a module without an environment.
        ImportError: if the library is not installed.
    """
    module = _module_named(name)
    for kind in ("parallel_env", "env"):
        make: Callable[..., Any] | None = getattr(module, kind, None)
        if callable(make):
            return make
    raise ValueError(f"environment {name!r}: {module.__name__} has neither parallel_env nor env")


def action_mask_of(*places: Any) -> list[int] | None:
    """Return the first `action_mask` in these mappings as a list of 0 and 1, or None."""
    for place in places:
        if isinstance(place, Mapping) and "action_mask" in place:
            mask: list[int] = np.asarray(place["action_mask"]).reshape(-1).astype(int).tolist()
            return mask
    return None


def pettingzoo_names(library: str) -> list[str]:
    """Return the sorted names of a library's environments, such as "pettingzoo/classic/chess_v6".

    They are read from its folders; nothing is imported. Empty if the library is not installed.
    """
    spec = importlib.util.find_spec(library) if library in LIBRARIES else None
    folders = list((spec and spec.submodule_search_locations) or [])
    found = []
    for module in pkgutil.iter_modules(folders):
        if _VERSIONED.fullmatch(module.name):
            found.append(f"{library}/{module.name}")
        elif module.ispkg and module.name not in _NO_FAMILIES:
            family = [os.path.join(folder, module.name) for folder in folders]
            found += [
                f"{library}/{module.name}/{one.name}"
                for one in pkgutil.iter_modules(family)
                if _VERSIONED.fullmatch(one.name)
            ]
    return sorted(found)


def _module_named(name: str) -> ModuleType:
    # Only listed names are imported: importing executes a module, and the name may come from a request.
    library = name.partition("/")[0]
    if library not in LIBRARIES:
        raise ValueError(
            f"environment {name!r}: expected {' or '.join(LIBRARIES)} before the first slash; for "
            "an environment of another library, give a function that creates it, as "
            "file.py:function"
        )
    known = pettingzoo_names(library)
    if not known and importlib.util.find_spec(library) is None:
        raise ImportError(
            f"environment {name!r}: needs {library}: {install_command('multiagent')}",
            name=library,
        )
    if name not in known:
        raise ValueError(
            f"environment {name!r}: {library} has no such environment{_hint(known, name)}"
        )
    try:
        with warnings.catch_warnings():
            # PettingZoo 1.27 recommends its registry, which other libraries and earlier versions lack.
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(name.replace("/", "."))
    except ModuleNotFoundError as error:
        raise ImportError(f"environment {name!r}: needs {error.name}", name=error.name) from error


def _hint(known: Sequence[str], name: str) -> str:
    """Suggest names that differ in the family, which people leave out, or in the version."""
    stem = _stem(name)
    near = [one for one in known if _stem(one) == stem]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _stem(name: str) -> str:
    return re.sub(r"_v\d+$", "", name.rpartition("/")[2])
