"""How functions are compiled here; numba is imported by the first one that is."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def compiles() -> bool:
    """Return whether numba compiles; with `NUMBA_DISABLE_JIT=1` it leaves functions as they are."""
    if "numba" in sys.modules:
        return not sys.modules["numba"].config.DISABLE_JIT
    return os.environ.get("NUMBA_DISABLE_JIT", "").strip() in ("", "0")


def compiled(*signatures: str, **options: Any) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function, and keeps the result on disk where that is possible.

    signatures: compile for these at once; with none, for the types of each first call.
    options: of `numba.njit`, such as `nogil=True`.

    Where numba is told not to compile, the function stays as it is.
    """

    def decorate(function: Function) -> Function:
        # A third of a second, which a process that compiles nothing should not spend.
        import numba

        fast: Any = numba.njit(**options)(function)
        if fast is function:
            return function
        with contextlib.suppress(
            RuntimeError, OSError
        ):  # no folder for the cache that can be written
            fast.enable_caching()
            _tolerate_broken_files(fast._cache)
        for signature in signatures:
            fast.compile(signature)
        if signatures:
            fast.disable_compile()
        return cast(Function, fast)

    return decorate


def _tolerate_broken_files(cache: Any) -> None:
    """Let a function be compiled anew where its files are empty or cut, as a power cut leaves them.

    numba would raise what unpickling raises, at every start from then on.
    """
    load, save = cache.load_overload, cache.save_overload

    def load_or_begin_anew(signature: Any, target: Any) -> Any:
        try:
            return load(signature, target)
        except Exception:  # unpickling what is no pickle raises almost anything
            with contextlib.suppress(OSError):
                cache.flush()
            return None

    def save_if_possible(signature: Any, data: Any) -> None:
        with contextlib.suppress(Exception):  # a full disk, or files that could not be replaced
            save(signature, data)

    cache.load_overload, cache.save_overload = load_or_begin_anew, save_if_possible
