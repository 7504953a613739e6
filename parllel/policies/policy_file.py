"""Policies defined in Python files."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path
from types import ModuleType
from typing import Any

from parllel.policies.policy import Policy
from parllel.runs.reference import import_script

# Names that Python adds to every module; some are callable.
_OF_PYTHON = frozenset({"__annotate__", "__builtins__", "__loader__", "__spec__"})


def policy_in_file(file: Path, name: str | None) -> Any:
    """Return the named agent of a file, or the last function or Policy that the file defines.

    The file is executed once per process, and can import modules from its folder. The last definition is the
    last name of the module whose value is callable or a Policy, including imported names and names with a
    leading underscore. The rule is from kaggle-environments (without policies).

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if the file cannot be imported (a syntax error, for example) or does not define the agent,
            and if the last definition is not an agent: a class other than a Policy, a type, or a built-in
            function.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such file")
    return policy_in_module(import_script(file), str(file), name)


def policy_in_module(module: ModuleType, where: str, name: str | None) -> Any:
    """Return the named agent of a module, or the last function or Policy that it defines.

    where: the module's file, or its name in errors.

    Raises:
        ValueError: as `policy_in_file`.
    """
    found = {
        n: thing for n, thing in vars(module).items() if n not in _OF_PYTHON and _is_one(thing)
    }
    if name is None:
        if not found:
            raise ValueError(f"{where}: expected a function or a Policy, got none")
        return _checked_last(*list(found.items())[-1], where)
    if not hasattr(module, name):
        defined = [n for n, thing in found.items() if _problem(thing) is None]
        raise ValueError(f"{where}: there is no {name!r}; it defines {defined}")
    thing = getattr(module, name)
    if not _is_one(thing) or _is_plain_class(thing):
        raise ValueError(f"{where}: {name}: expected a function or a Policy, got {thing!r}")
    return thing


def _checked_last(name: str, thing: Any, where: str) -> Any:
    """Return the last definition of a module. Raises ValueError if it is not an agent."""
    problem = _problem(thing)
    if problem is not None:
        # No fallback to the definition before: it is ambiguous which one the author meant.
        named = f", or name it, as in {Path(where).name}:agent" if where.endswith(".py") else ""
        raise ValueError(
            f"{where}: expected a function or a Policy, but the last name that it defines is "
            f"{name}, {problem}; define the agent after it{named}"
        )
    return thing


def _is_one(thing: Any) -> bool:
    return isinstance(thing, Policy) or callable(thing)


def _is_plain_class(thing: Any) -> bool:
    return inspect.isclass(thing) and (not issubclass(thing, Policy) or inspect.isabstract(thing))


def _problem(thing: Any) -> str | None:
    """Describe a callable that is not an agent; None if it may be one."""
    if _is_plain_class(thing):
        return "a class"
    if typing.get_origin(thing) is not None:  # such as `list[int]`
        return "a type"
    return "a built-in function" if inspect.isbuiltin(thing) else None
