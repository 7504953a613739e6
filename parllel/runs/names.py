"""Suggestions for unknown names."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
ClassT = TypeVar("ClassT", bound=type)

_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the closest of `names`. Abbreviations count: learning_rate is found for lr."""
    names = list(names)
    for near in difflib.get_close_matches(name, names, n=1):
        return near
    return next((long for long in names if _is_short_for(name.lower(), long.lower())), None)


def suggest_names(
    *others: Callable[..., Any],
) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """Decorate a function so that the TypeError for an unknown keyword argument suggests a known one.

    Python itself suggests names from 3.13 on, but not for abbreviations, and not where keyword
    arguments are passed on to another function.

    others: functions and classes to which the function passes its `**arguments`.
    """

    def decorate(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        named = inspect.unwrap(function)
        known = [name for taker in (named, *others) for name in _keywords_of(taker)]
        is_init = named.__name__ == "__init__"

        @functools.wraps(function)
        def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
            for name in kwargs:
                if name not in known:
                    near = nearest(name, known)
                    # Name the class that was called, which may inherit its constructor.
                    who = type(args[0]).__name__ if is_init else named.__name__
                    hint = f"did you mean {near}?" if near else f"expected some of {known}"
                    raise TypeError(f"{who}: unexpected argument {name!r}; {hint}")
            return function(*args, **kwargs)

        return checked

    return decorate


def suggest_fields(dataclass: ClassT) -> ClassT:
    """Decorate a dataclass with `suggest_names`."""
    dataclass.__init__ = suggest_names()(dataclass.__init__)  # type: ignore[misc]
    return dataclass


def _keywords_of(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.kind in _BY_KEYWORD and one.name != "self"]


def _is_short_for(name: str, long: str) -> bool:
    words = long.split("_")
    if len(words) > 1 and name == "".join(word[:1] for word in words):
        return True
    parts = name.split("_")  # ent_coef: the beginnings of some of the words, in order
    # Beginnings of one or two letters fit nearly every name.
    return len(min(parts, key=len)) > 2 and _begin_some(parts, words)


def _begin_some(parts: list[str], words: list[str]) -> bool:
    # One iterator for all parts, so that each is looked for after the one before.
    left = iter(words)
    return all(any(word.startswith(part) for word in left) for part in parts)
