"""Policies that stand in files of Python."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

from parllel.policies.policy import Policy
from parllel.runs import import_script


def policy_in_file(file: Path, name: str | None) -> Any:
    """Return what a file defines under a name; without one the last function or Policy that it defines.

    The file is executed, once in this process, and finds what stands beside it. Names with a leading
    underscore, imported ones and classes that are no policies are not looked at.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be imported, as for a syntax error, or defines no such thing.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such file")
    return policy_in_module(import_script(file), str(file), name)


def policy_in_module(module: ModuleType, where: str, name: str | None) -> Any:
    """Return what a module defines under a name; without one the last function or Policy that it defines.

    where: the module's name in messages.

    Raises:
        ValueError: if there is no such thing.
    """
    found = _defined_in(module)
    if name is None:
        if not found:
            raise ValueError(f"{where}: expected a function or a Policy, got none")
        return list(found.values())[-1]
    if not hasattr(module, name):
        raise ValueError(f"{where}: there is no {name!r}; it defines {list(found)}")
    thing = getattr(module, name)
    if not _acts(thing):
        raise ValueError(f"{where}: {name}: expected a function or a Policy, got {thing!r}")
    return thing


def _defined_in(module: ModuleType) -> dict[str, Any]:
    return {
        name: thing
        for name, thing in vars(module).items()
        if not name.startswith("_") and _acts(thing) and _is_own(thing, module)
    }


def _acts(thing: Any) -> bool:
    if inspect.isclass(thing):
        return issubclass(thing, Policy) and not inspect.isabstract(thing)
    return isinstance(thing, Policy) or callable(thing)


def _is_own(thing: Any, module: ModuleType) -> bool:
    # Objects such as partials do not say where they were made; they were hardly imported.
    if not inspect.isclass(thing) and not inspect.isroutine(thing):
        return True
    return getattr(thing, "__module__", None) == module.__name__
