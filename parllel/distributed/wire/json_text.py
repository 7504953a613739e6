"""Strict JSON text, as all servers of this package read and write it.

RFC 8259 without anything that readers interpret differently: no NaN, duplicate keys, lone surrogates or
numbers beyond float64.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn

from parllel.distributed.wire.limits import DEEPEST, Limits
from parllel.distributed.wire.wire_error import WireError, shown

_DEFAULT = Limits()
_MAX_DIGITS = 1000  # of an int, as Python parses them in quadratic time
# A string without escapes, or the rest of the text if unterminated. Matching wherever a string starts keeps
# the time linear.
_STRING = re.compile(r'"[^"]*(?:"|\Z)')
_BRACKET = re.compile(r"[\[\]{}]")
_SURROGATE = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]")


def json_bytes(value: Any) -> bytes:
    """Serialise JSON values as compact UTF-8.

    value: None, bool, int, float, str, and lists, tuples and dicts (with str keys) of these. `to_json` turns
        values of a space into such values.

    Raises:
        WireError: for any other value, such as NaN. Names its path.
    """
    _check(value, DEEPEST)
    return _encoder.encode(value).encode()


def parse_json(text: bytes | bytearray | memoryview | str, limits: Limits = _DEFAULT) -> Any:
    """Parse JSON text from an untrusted source. Limits are checked before values are created.

    text: the text as str, or as bytes in UTF-8.

    Raises:
        WireError: if it is not JSON, contains a duplicate key, NaN or Infinity, a lone surrogate, an int of
            more than 1,000 digits or a number beyond float64, or exceeds a limit.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
        if len(data) > limits.nbytes:
            raise WireError(
                f"expected at most {limits.nbytes} bytes (Limits.nbytes), got {len(data)}"
            )
        text = text if isinstance(text, str) else str(text, "utf-8")
        _check_limits(text, limits)
        value = _decoder.decode(text)
        # Python accepts a lone surrogate, but text that contains one cannot be encoded again.
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise WireError(f"expected JSON in UTF-8: {error}") from None
    except json.JSONDecodeError as error:
        raise WireError(f"expected JSON: {error}") from None
    except RecursionError:
        raise WireError("values are nested too deeply for the Python stack") from None
    return value


def _check_limits(text: str, limits: Limits) -> None:
    """Check the number and nesting of values by counting the punctuation outside of strings."""
    # Python's parser counts neither, and would overflow the stack first.
    # Escapes are removed first: a pattern that skips them takes 90 bytes of memory for each.
    signs = _STRING.sub("", text.replace("\\\\", "").replace('\\"', ""))
    opening = signs.count("[") + signs.count("{")
    if 1 + opening + signs.count(",") + signs.count(":") > limits.items:
        raise WireError(f"more than {limits.items} values (Limits.items)")
    if opening <= limits.depth:
        return
    depth = 0
    for bracket in _BRACKET.finditer(signs):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > limits.depth:
            raise WireError(
                f"values are nested more deeply than Limits.depth allows, which is {limits.depth}"
            )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        duplicates = [key for key, n in Counter(key for key, _ in pairs).items() if n > 1]
        raise WireError(f"the key {shown(duplicates[0])} occurs twice in an object")
    return members


def _constant(name: str) -> NoReturn:
    raise WireError(f'expected JSON, which has no {name}; send the string "{name}"')


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise WireError(f"expected a number that fits in a float64, got {digits[:40]}")
    return value


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise WireError(f"expected an int of at most {_MAX_DIGITS} digits, got {len(digits)}")
    return int(digits)


# Created once: `json.dumps` and `json.loads` with options create one per call.
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int
)


def _check(value: Any, depth: int) -> None:
    """Raise WireError for values that JSON lacks, and for those it would silently change."""
    kind = type(value)
    if kind is str:
        _check_text(value)
    elif kind is float:
        if not math.isfinite(value):
            raise WireError(
                f"expected a finite number, got {value}; send it as a string, as to_json does"
            )
    elif kind is dict or kind is list or kind is tuple:
        if depth < 1:
            raise WireError(
                f"values are nested more than {DEEPEST} levels deep; perhaps one contains itself"
            )
        for key, item in value.items() if kind is dict else enumerate(value):
            if kind is dict:
                _check_key(key)
            try:
                _check(item, depth - 1)
            except WireError as error:
                raise error.under(key) from None
    elif value is not None and kind is not bool and kind is not int:
        raise WireError(
            "expected None, bool, int, float, str, list, tuple or dict, got "
            f"{kind.__module__}.{kind.__qualname__}; to_json converts values of a space"
        )


def _check_key(key: Any) -> None:
    if type(key) is not str:
        raise WireError(f"expected keys of type str, got {shown(key)}")
    _check_text(key)


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise WireError(f"expected text, got a lone surrogate in {shown(text)}") from None
