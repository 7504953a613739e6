"""Python values as arrays and JSON values, and back with the types that they had.

A state file knows arrays, numbers, strings, None, lists and dicts with string keys. Attributes of
environments are also tuples, numpy scalars and dicts with other keys, and to go on exactly they must come
back as such: a float32 times 0.1 is not a float64 times 0.1. So each container is one dict whose only key
says what it was.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

import numpy as np

_AS_THEY_ARE = (bool, int, float, str, type(None))


def freeze(value: Any, at: str = "value") -> Any:
    """Convert `value` to copied arrays and JSON values, which `thaw` converts back.

    Numbers, strings, None and arrays are supported, and lists, tuples, deques and dicts of them.

    Raises:
        TypeError: for a value of any other type; the message begins with `at`.
    """
    # The exact type: np.float64 is a subclass of float, and would come back as one.
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    # numpy saves objects as pickles, which no checkpoint may hold.
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        array = np.array(value)
        return array if isinstance(value, np.ndarray) else {"scalar": array}
    if kind is tuple:
        return {"tuple": [freeze(part, f"{at}[{i}]") for i, part in enumerate(value)]}
    if kind in (list, deque):
        return {"list": [freeze(part, f"{at}[{i}]") for i, part in enumerate(value)]}
    if kind in (dict, OrderedDict):
        # As pairs, since keys in JSON are strings, and those of an environment may be numbers.
        pairs = [[freeze(key, at), freeze(part, f"{at}[{key!r}]")] for key, part in value.items()]
        return {"dict": pairs}
    raise TypeError(f"{at}: expected numbers, strings, arrays or containers of them, got {kind}")


def thaw(frozen: Any) -> Any:
    """Convert a value returned by `freeze` back. Deques become lists.

    Raises:
        TypeError: if `frozen` was not returned by `freeze`.
    """
    if type(frozen) in _AS_THEY_ARE:
        return frozen
    if isinstance(frozen, np.ndarray):
        return frozen.copy()
    if isinstance(frozen, dict) and len(frozen) == 1:
        ((kind, parts),) = frozen.items()
        if kind == "scalar" and isinstance(parts, np.ndarray) and parts.shape == ():
            return parts[()]
        if isinstance(parts, list):
            if kind == "tuple":
                return tuple(thaw(part) for part in parts)
            if kind == "list":
                return [thaw(part) for part in parts]
            if kind == "dict" and all(isinstance(pair, list) and len(pair) == 2 for pair in parts):
                return {thaw(key): thaw(part) for key, part in parts}
    raise TypeError(f"expected a saved value, got {frozen!r}")


def plain_copy(value: Any, at: str = "state") -> Any:
    """Return a deep copy of a state, in the form that it has when it is read from a file.

    Tuples become lists, and NumPy scalars become arrays without dimensions.

    Raises:
        TypeError: for anything but arrays, numbers, strings, None, lists, tuples and dicts with string
            keys. The message names the place of the value in the state.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.hasobject:
            raise TypeError(f"{at}: arrays of objects cannot be saved")
        return np.array(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain_copy(part, f"{at}[{i}]") for i, part in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{at}: expected strings as keys, got {key!r}")
        return {key: plain_copy(part, f"{at}.{key}") for key, part in value.items()}
    raise TypeError(f"{at}: expected arrays and JSON values, got {type(value).__name__}")
