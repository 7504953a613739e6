"""Compilation of functions with numba, which is imported for the first one."""

from __future__ import annotations

import contextlib
import glob
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

from parllel.system.code_digest import code_digest

Function = TypeVar("Function", bound=Callable[..., Any])
# numba's listener, which adds up the time between the beginnings and ends of compilations.
_timer: Any = None
_others_s = 0.0  # spent by other compilers
VARIANTS = 100  # of a function that are kept in the cache, each of some 100 kB


def seconds_compiling() -> float:
    """Return how long this process has compiled; loading from numba's cache does not count.

    Of numba, what follows the first use of `compiled` counts, functions of other libraries included; of other
    compilers, what is reported to `add_seconds_compiling`.
    """
    return _others_s + (float(_timer.duration) if _timer is not None and _timer.done else 0.0)


def add_seconds_compiling(seconds: float) -> None:
    """Report that another compiler than numba has worked for `seconds`."""
    global _others_s
    _others_s += seconds


def _start_timer() -> None:
    global _timer
    if _timer is None:
        from numba.core import event as untyped

        event: Any = untyped
        _timer = event.TimingListener()
        event.register("numba:compile", _timer)


def compiles() -> bool:
    """Return whether numba compiles; it does not with `NUMBA_DISABLE_JIT=1`."""
    # Without importing numba only for this.
    if "numba" in sys.modules:
        return not sys.modules["numba"].config.DISABLE_JIT
    return os.environ.get("NUMBA_DISABLE_JIT", "").strip() in ("", "0")


def compiled(
    *signatures: Any, cache: bool = True, whole: bool = False, **options: Any
) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function and caches the result on disk if possible.

    signatures: argument types to compile for immediately; others are refused. Without signatures, numba
        compiles at the first call with each combination of types.
    cache: whether to cache on disk.
    whole: whether a change of anything that the function refers to counts as a change of the function: other
        functions, and numbers, in whatever file. Otherwise numba compiles anew only if the function's own
        file has changed. Such a function is not cached if it refers to what `code_digest` cannot cover.
    options: options of `numba.njit`, such as `nogil=True`.

    With `NUMBA_DISABLE_JIT=1` the function is returned unchanged.
    """

    def decorate(function: Function) -> Function:
        # Importing numba takes a third of a second; processes that compile nothing should not pay for it.
        import numba

        digest = code_digest(function, **options) if cache and whole and compiles() else None
        named = function if digest is None else _named(function, digest)
        fast: Any = numba.njit(**options)(named)
        if fast is named:
            return function
        _start_timer()
        # Raised if no folder for the cache is writable, as on a read-only file system.
        with contextlib.suppress(RuntimeError, OSError):
            if cache and (digest is not None or not whole):
                fast.enable_caching()
                _tolerate_broken_files(fast._cache)
                if digest is not None:
                    _keep_few(fast, function.__qualname__)
        for signature in signatures:
            fast.compile(signature)
        # Other types raise an error, instead of a slow and unnoticed compilation in the middle of a run.
        if signatures:
            fast.disable_compile()
        return cast(Function, fast)

    return decorate


def intrinsic(function: Callable[..., Any]) -> Any:
    """Decorate like numba's `intrinsic`, which has no types and takes long to import."""
    from numba.extending import intrinsic as decorate

    return decorate(function)


def _named(function: Any, digest: str) -> Any:
    """Return a copy of a function whose name, and so that of its files in the cache, has a digest."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__, copy.__module__ = function.__kwdefaults__, function.__module__
    copy.__qualname__ = f"{function.__qualname__}.{digest[:24]}"
    return copy


def _keep_few(fast: Any, name: str) -> None:
    """Remove the oldest variants of a function from the cache, of which each change leaves one."""
    # As numba names files. Of functions with the same name in files with the same name, all count.
    stem = f"{Path(fast.py_func.__code__.co_filename).stem}.{name}.".replace("<", "").replace(
        ">", ""
    )
    folder = Path(fast.stats.cache_path)
    found = [path for path in folder.glob("*.nbi") if path.name.startswith(stem)]
    if len(found) > VARIANTS:
        for path in sorted(found, key=lambda path: path.stat().st_mtime)[:-VARIANTS]:
            for other in (path, *folder.glob(f"{glob.escape(path.stem)}.*.nbc")):
                other.unlink(missing_ok=True)


def _tolerate_broken_files(cache: Any) -> None:
    """Make a cache ignore empty or truncated files, as after a power failure.

    Otherwise numba would raise an unpickling error at every start from then on.
    """
    load, save = cache.load_overload, cache.save_overload

    def load_or_compile(signature: Any, target: Any) -> Any:
        try:
            return load(signature, target)
        except Exception:  # unpickling damaged data may raise almost anything
            with contextlib.suppress(OSError):
                cache.flush()
            return None  # numba then compiles the function, as if it were not cached

    def save_if_possible(signature: Any, data: Any) -> None:
        with contextlib.suppress(Exception):  # the disk is full, or a file cannot be replaced
            save(signature, data)

    cache.load_overload, cache.save_overload = load_or_compile, save_if_possible
