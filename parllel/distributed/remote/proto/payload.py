"""Conversion of values to and from Payload messages.

str bool None bytes     unchanged
int                     of 64 bits
float                   rounded to 32 bits
list, tuple             unchanged
dict                    with str keys, in protobuf's order
numpy array, scalar     in the format of `np.save`, bit for bit
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from parllel.distributed.remote.proto.descriptors import message_class
from parllel.distributed.remote.proto.numpy_file import array_bytes, read_array
from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.wire_error import WireError

_FRAMES = {
    "pandas_frame": "a frame of pandas",
    "polars_frame": "a frame of polars",
    "pandas_series": "a series of pandas",
    "polars_series": "a series of polars",
}
# Protobuf parsers refuse more than 100 levels of messages, and each level of dicts takes three.
_DEEPEST = 30
_LARGEST = float(np.finfo(np.float32).max)
_FLOAT = np.float32


def to_payload(value: Any) -> Any:
    """Convert a value to a Payload message.

    Raises:
        WireError: for a value that cannot be converted, such as a set or an int beyond 64 bits.
            Names its path.
    """
    payload = message_class("Payload")()
    fill(payload, value)
    return payload


def fill(payload: Any, value: Any, depth: int = _DEEPEST) -> None:
    """Write a value to an empty Payload message. Raises as `to_payload`."""
    kind = type(value)
    if value is None:
        payload.none = True
    elif isinstance(value, np.generic):  # before float and str, the base classes of some
        payload.numpy_scalar = array_bytes(np.asarray(value))
    elif isinstance(value, bool):
        payload.bool = value
    elif isinstance(value, int):
        if not -(1 << 63) <= value < (1 << 63):
            raise WireError(
                f"expected an int that fits in 64 bits, got one of {value.bit_length() + 1} bits"
            )
        payload.int = value
    elif isinstance(value, float):
        if math.isfinite(value) and abs(value) > _LARGEST:
            raise WireError(f"expected a float that fits in a float32, got {value}")
        payload.float = value
    elif isinstance(value, str):
        payload.str = _text(value)
    elif isinstance(value, (bytes, bytearray)):
        payload.raw_bytes = bytes(value)
    elif isinstance(value, np.ndarray):
        payload.numpy_array = array_bytes(value)
    elif isinstance(value, (list, tuple, Mapping)):
        _fill_with_parts(payload, value, depth)
    else:
        raise WireError(
            "expected None, bool, int, float, str, bytes, list, tuple, dict or numpy, got "
            f"{kind.__module__}.{kind.__qualname__}"
        )


def _fill_with_parts(payload: Any, value: Any, depth: int) -> None:
    if depth < 1:
        raise WireError(
            f"values are nested more than {_DEEPEST} levels deep; perhaps one contains itself"
        )
    if isinstance(value, Mapping):
        parts = payload.dict.payload_map
        payload.dict.SetInParent()  # otherwise an empty dict would be no value at all
    else:
        holder = payload.tuple if isinstance(value, tuple) else payload.list
        holder.SetInParent()
        parts = holder.payloads
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        try:
            if not isinstance(value, Mapping):
                fill(parts.add(), item, depth - 1)
            elif not isinstance(key, str):
                raise WireError(f"expected keys of type str, got {type(key).__name__}")
            else:
                fill(parts[_text(key)], item, depth - 1)
        except WireError as error:
            raise error.under(key) from None


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise WireError("expected text, got a lone surrogate") from None
    return str(text)


def from_payload(payload: Any, limits: Limits | None = None) -> Any:
    """Return the value of a Payload message from an untrusted source. Arrays are writable.

    Raises:
        WireError: if the message contains no value, or too many.
    """
    return _value(payload, [(limits or Limits()).items])


def _value(payload: Any, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0:
        raise WireError("more values than Limits.items allows")
    kind = payload.WhichOneof("value")
    if kind == "none":
        return None
    if kind in ("str", "bool", "int", "raw_bytes"):
        return getattr(payload, kind)
    if kind == "float":
        return float(_FLOAT(payload.float))
    if kind in ("list", "tuple"):
        items = []
        for i, item in enumerate(getattr(payload, kind).payloads):
            try:
                items.append(_value(item, left))
            except WireError as error:
                raise error.under(i) from None
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        made = {}
        for key, item in payload.dict.payload_map.items():
            try:
                made[key] = _value(item, left)
            except WireError as error:
                raise error.under(key) from None
        return made
    if kind in ("numpy_array", "numpy_scalar"):
        array = read_array(getattr(payload, kind))
        if kind == "numpy_scalar" and array.ndim:
            raise WireError(f"expected a numpy scalar, got an array of shape {array.shape}")
        return array[()] if kind == "numpy_scalar" else array
    if kind in _FRAMES:
        raise WireError(
            f"expected values or arrays, got {_FRAMES[kind]}; send its columns as arrays"
        )
    raise WireError("expected a payload with a value, got an empty one")
