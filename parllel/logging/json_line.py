"""Values as one line of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

# Of an array in a record. A line is for people and scripts to read; frames belong in files of their own.
MAX_ELEMENTS = 4096
_AS_IT_IS = frozenset({str, int, bool, type(None)})
# `json` would by default write NaN, which other readers refuse. What holds itself is found before.
_ENCODER = json.JSONEncoder(allow_nan=False, check_circular=False)


def json_line(owner: str, values: Mapping[str, Any]) -> bytes:
    r"""Return a dict as one line of JSON, with "\n" at its end.

    Tuples become lists, as do arrays of numpy of up to 4,096 elements; scalars of numpy become numbers.
    JSON has no numbers that are not finite: they become "NaN", "Infinity" and "-Infinity", which `float`
    reads back, and JavaScript's `Number`.

    owner: for messages.

    Raises:
        TypeError: for any other value, or a key that is no string; names the path within `values`.
    """
    try:
        return _ENCODER.encode(_plain(values)).encode() + b"\n"
    except _RefusedError as error:
        raise TypeError(f"{owner}: {error.path or 'the values'}: {error}") from None
    except ValueError as error:  # an int of more digits than Python prints, and reads
        raise TypeError(f"{owner}: {error}") from None
    except RecursionError:
        raise TypeError(
            f"{owner}: expected values without deep nesting, got some that are nested too deeply "
            "or contain themselves"
        ) from None


class _RefusedError(Exception):
    path = ""  # completed on the way out, as it is needed for errors alone


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is float:
        return value if math.isfinite(value) else _spelled(value)
    if kind is dict or isinstance(value, Mapping):
        return _plain_dict(value)
    if isinstance(value, (list, tuple)):
        return _plain_list(value)
    if isinstance(value, np.ndarray):
        return _plain_array(value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return _plain(float(value))
    if isinstance(value, str):  # such as numpy's
        return value
    raise _RefusedError(
        f"expected a JSON value, or a number or small array of numpy, got {kind.__name__} "
        f"{value!r:.100}"
    )


def _plain_dict(values: Mapping[Any, Any]) -> dict[str, Any]:
    plain = {}
    for key, value in values.items():
        if not isinstance(key, str):  # `json` would make strings of some
            raise _RefusedError(f"expected strings as keys, got {key!r:.100}")
        try:
            # Most values need no call.
            plain[key] = value if type(value) in _AS_IT_IS else _plain(value)
        except _RefusedError as error:
            rest = error.path
            error.path = f"{key}{'.' if rest and rest[0] != '[' else ''}{rest}"
            raise
    return plain


def _plain_list(values: Iterable[Any]) -> list[Any]:
    plain: list[Any] = []
    for value in values:
        try:
            plain.append(_plain(value))
        except _RefusedError as error:
            rest = error.path
            error.path = f"[{len(plain)}]{'.' if rest and rest[0] != '[' else ''}{rest}"
            raise
    return plain


def _plain_array(array: np.ndarray[Any, Any]) -> Any:
    if array.size > MAX_ELEMENTS:
        raise _RefusedError(
            f"expected an array of at most {MAX_ELEMENTS:,} elements, got shape {array.shape}; "
            "write it to a separate file"
        )
    if array.dtype.kind not in "biufU":
        raise _RefusedError(f"expected an array of numbers or strings, got dtype {array.dtype}")
    return _plain(array.tolist())


def _spelled(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
