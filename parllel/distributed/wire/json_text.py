"""JSON as text, under the rules that all servers of this package keep.

RFC 8259, and nothing that other readers may understand differently: no NaN, no key twice, no half of a
surrogate pair, no number beyond float64.
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
_MAX_DIGITS = 1000  # of an int: Python takes the square of their number in time
# A string without escapes, or the rest of the text if it does not end: it matches wherever it begins, so time
# is linear.
_STRING = re.compile(r'"[^"]*(?:"|\Z)')
_BRACKET = re.compile(r"[\[\]{}]")
_SURROGATE = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]")


def json_bytes(value: Any) -> bytes:
    """Return JSON values as UTF-8 without spaces.

    value: None, bool, int, float, str, and lists, tuples and dicts with keys that are str of these. `to_json`
        makes such values of others.

    Raises:
        WireError: names the path of a value that is none of these, such as a NaN.
    """
    _check(value, DEEPEST)
    return _encoder.encode(value).encode()


def parse_json(text: bytes | bytearray | memoryview | str, limits: Limits = _DEFAULT) -> Any:
    """Return the values of JSON text, from whoever it may come.

    text: UTF-8 if it is bytes. Limits are checked before values are made.

    Raises:
        WireError: if it is not JSON, has a key twice in an object, NaN or Infinity, half of a surrogate pair,
            an int of more than 1,000 digits, a number beyond float64, or exceeds a limit.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
        if len(data) > limits.nbytes:
            raise WireError(f"{len(data)} bytes, of {limits.nbytes} allowed (Limits.nbytes)")
        text = text if isinstance(text, str) else str(text, "utf-8")
        _check_limits(text, limits)
        value = _decoder.decode(text)
        # Python reads half of a pair, but no text that holds it can be written again.
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise WireError(f"expected JSON in UTF-8: {error}") from None
    except json.JSONDecodeError as error:
        raise WireError(f"expected JSON: {error}") from None
    except RecursionError:
        raise WireError("no room is left on the stack for the lists inside each other") from None
    return value


def _check_limits(text: str, limits: Limits) -> None:
    """Check how many values there are, and how deeply they are nested, by the signs between them."""
    # The parser of Python counts neither, and would exceed the stack before it says so.
    # Escapes go first: a pattern that steps over them would take 90 bytes of memory for each.
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
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = [key for key, number in Counter(key for key, _ in pairs).items() if number > 1]
        raise WireError(f"the key {shown(twice[0])} occurs twice in an object")
    return made


def _constant(name: str) -> NoReturn:
    raise WireError(f'expected JSON, which has no {name}; send it as a string, "{name}"')


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise WireError(f"expected numbers that float64 holds, got {digits[:40]}")
    return value


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise WireError(f"expected ints of at most {_MAX_DIGITS} digits, got {len(digits)}")
    return int(digits)


# Made once: `json.dumps` and `json.loads` make one for each call.
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int
)


def _check(value: Any, depth: int) -> None:
    """Raise a WireError for what JSON does not have, and what would be changed on its way."""
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
            raise WireError(f"values are nested more than {DEEPEST} deep; perhaps one holds itself")
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
            f"{kind.__module__}.{kind.__qualname__}; to_json makes JSON of values of a space"
        )


def _check_key(key: Any) -> None:
    if type(key) is not str:
        raise WireError(f"expected keys that are str, got {shown(key)}")
    _check_text(key)


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise WireError(
                f"expected text, got half of a surrogate pair in {shown(text)}"
            ) from None
