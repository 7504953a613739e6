"""How functions are compiled here; numba is imported by the first one that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(*signatures: str, **options: Any) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function, and keeps the result on disk where that is possible.

    signatures: compile for these at once; with none, for the types of each first call.
    options: of `numba.njit`, such as `nogil=True`.
    """

    def decorate(function: Function) -> Function:
        # A third of a second, which a process that compiles nothing should not spend.
        import numba

        njit: Any = numba.njit
        types: tuple[Any, ...] = (list(signatures),) if signatures else ()
        try:
            fast: Any = njit(*types, cache=True, **options)(function)
        except (RuntimeError, OSError):  # no folder for the cache, or none that can be written
            fast = njit(*types, **options)(function)
        return cast(Function, fast)

    return decorate
