"""Policies that stand in files of Python."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path
from types import ModuleType
from typing import Any

from parllel.policies.policy import Policy
from parllel.runs.reference import import_script

# What Python itself puts into a module, some of which can be called.
_OF_PYTHON = frozenset({"__annotate__", "__builtins__", "__loader__", "__spec__"})


def policy_in_file(file: Path, name: str | None) -> Any:
    """Return what a file defines under a name; without one the last function or Policy that it defines.

    The file is executed, once in this process, and finds what stands beside it. The last is the last name of
    the module whose value can be called, or is a Policy: imported ones count, and so do those with a leading
    underscore. This is the rule of kaggle-environments, which knows no policies.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be imported, as for a syntax error, or defines no such thing. Also if the
            last is no agent: a class that is no Policy, a type, or a built-in function.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such file")
    return policy_in_module(import_script(file), str(file), name)


def policy_in_module(module: ModuleType, where: str, name: str | None) -> Any:
    """Return what a module defines under a name; without one the last function or Policy that it defines.

    where: the module's file, or what messages call it.

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
    """Return what stands last in a module, unless it is no agent."""
    problem = _problem(thing)
    if problem is not None:
        # Not the one before it: the author may have meant that, and others would play this one.
        named = f", or name it, as in {Path(where).name}:agent" if where.endswith(".py") else ""
        raise ValueError(
            f"{where}: expected a function or a Policy, but the last that it defines is {name}, {problem}; "
            f"define the agent after it{named}"
        )
    return thing


def _is_one(thing: Any) -> bool:
    return isinstance(thing, Policy) or callable(thing)


def _is_plain_class(thing: Any) -> bool:
    return inspect.isclass(thing) and (not issubclass(thing, Policy) or inspect.isabstract(thing))


def _problem(thing: Any) -> str | None:
    """Return what something is that can be called and is no agent; None for what may be one."""
    if _is_plain_class(thing):
        return "a class"
    if typing.get_origin(thing) is not None:  # such as `list[int]`
        return "a type"
    return "a built-in function" if inspect.isbuiltin(thing) else None
