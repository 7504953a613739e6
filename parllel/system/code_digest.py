"""A digest of all that a function computes with: compiled code is found again only if nothing of it changed.

what a digest covers                                                  otherwise
bytecode, constants, defaults                                         comments and lines do not matter
functions and numbers that are referred to, wherever they are         anything else: there is no digest
the standard library, numpy, numba: by name and version
"""

from __future__ import annotations

import dis
import hashlib
import platform
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, ModuleType
from typing import Any

import numpy as np

# Modules that a version identifies. Others may change without one.
_VERSIONED = {*sys.stdlib_module_names, "numpy", "numba"}


class _UnknownValueError(Exception):
    """A function refers to something that a digest cannot cover."""


def code_digest(function: Callable[..., Any], **options: Any) -> str | None:
    """Return a digest of a function and of all that it refers to, the same in every process.

    options: those that it is compiled with.

    Functions compiled by numba count as what they were compiled from. None if the function refers to a value
    whose changes would go unnoticed, such as an object, a class, or a module of your own; and if it closes
    over a compiled function, as numba then finds it in no other process.
    """
    import numba

    plain = getattr(function, "py_func", function)
    sha = hashlib.sha256()
    versions = platform.python_version(), np.__version__, numba.__version__, sorted(options.items())
    try:
        if any(hasattr(cell.cell_contents, "py_func") for cell in plain.__closure__ or ()):
            return None
        for part in (repr(versions), *_function_parts(plain, {})):
            sha.update(part.encode(errors="surrogatepass"))
            sha.update(b"\0")
    except (_UnknownValueError, ValueError):  # the latter for a name that is not bound yet
        return None
    return sha.hexdigest()


def _function_parts(function: Any, seen: dict[int, int]) -> Iterator[str]:
    """Describe a function; `seen` numbers those that were described before, which may be recursive."""
    if id(function) in seen:
        yield f"function {seen[id(function)]}"
        return
    seen[id(function)] = len(seen)
    yield "function"
    yield from _code_parts(function.__code__)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    keywords = sorted((function.__kwdefaults__ or {}).items())
    yield from _parts((function.__defaults__, tuple(keywords), tuple(cells)), seen)
    for name in sorted(_global_names(function.__code__)):
        yield name
        # Otherwise a builtin, or a name that fails when it is reached.
        if name in function.__globals__:
            yield from _parts(function.__globals__[name], seen)


def _parts(value: Any, seen: dict[int, int]) -> Iterator[str]:
    """Describe a value that a function refers to."""
    # First, as a compiled function is none of the following. Compiled code calls no others, but what numba
    # was told to take in their place, which does not show here.
    if (plain := getattr(value, "py_func", None)) is not None:
        yield repr(sorted(value.targetoptions.items()))
        yield from _function_parts(plain, seen)
    elif type(value) in (tuple, list):
        yield f"{type(value).__name__} {len(value)}"
        for one in value:
            yield from _parts(one, seen)
    elif value is None or type(value) in (bool, int, float, complex, str, bytes):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        yield f"{type(value).__name__} {np.lib.format.dtype_to_descr(value.dtype)} {value.shape}"
        yield np.ascontiguousarray(value).tobytes().hex()
    elif isinstance(value, np.dtype) and not value.hasobject:
        yield f"dtype {np.lib.format.dtype_to_descr(value)} {value.isalignedstruct}"
    elif isinstance(value, ModuleType):
        yield f"module {_versioned(value.__name__)} {value.__name__}"
    elif isinstance(value, (type, BuiltinFunctionType, np.ufunc)):
        module = getattr(value, "__module__", None) or "numpy"
        yield f"{_versioned(module)} {module} {getattr(value, '__qualname__', value.__name__)}"
    else:
        raise _UnknownValueError


def _code_parts(code: CodeType) -> Iterator[str]:
    yield f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} {code.co_flags}"
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant)
        else:
            # Constants of code are numbers, words, None, ... or tuples and sets of them.
            ordered = sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant
            yield repr((type(constant), ordered))


def _global_names(code: CodeType) -> set[str]:
    names = {
        one.argval
        for one in dis.get_instructions(code)
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def _versioned(module: str) -> str:
    if module.partition(".")[0] not in {*_VERSIONED, "builtins"}:
        raise _UnknownValueError
    return "of a version"
