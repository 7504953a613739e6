"""Serialisation of protobuf requests and responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parllel.distributed.remote.proto.descriptors import message_class
from parllel.distributed.remote.proto.payload import fill, from_payload
from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.wire_error import WireError

_DEFAULT = Limits(nbytes=16 << 20)
_SHORT = 1 << 18
# Nested messages by field number. The entries of a map are messages as well.
_PARTS: dict[str, dict[int, str]] = {
    "KaggleEvaluationRequest": {2: "Payload", 3: "Entry"},
    "KaggleEvaluationResponse": {1: "Payload"},
    "Payload": {6: "PayloadList", 7: "PayloadList", 8: "PayloadMap"},
    "PayloadList": {1: "Payload"},
    "PayloadMap": {1: "Entry"},
    "Entry": {2: "Payload"},
}
_FIXED = {1: 8, 5: 4}  # bytes, by wire type
_VARINT, _BYTES = 0, 2


def request_bytes(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Serialise a call.

    name: name of the function.

    Raises:
        WireError: for an argument that cannot be converted. Names its path.
    """
    request = message_class("KaggleEvaluationRequest")(name=name)
    for i, value in enumerate(args):
        _fill(request.args.add(), value, "args", i)
    for key, value in kwargs.items():
        _fill(request.kwargs[key], value, "kwargs", key)
    return _serialized(request)


def response_bytes(value: Any) -> bytes:
    """Serialise a result. Raises as `request_bytes`."""
    response = message_class("KaggleEvaluationResponse")()
    fill(response.payload, value)
    return _serialized(response)


def read_request(
    message: bytes, limits: Limits = _DEFAULT
) -> tuple[str, list[Any], dict[str, Any]]:
    """Return name, arguments and keyword arguments of a call from an untrusted source.

    Raises:
        WireError: if the message is damaged or exceeds a limit.
    """
    request = _parsed("KaggleEvaluationRequest", message, limits)
    args = [from_payload(value, limits) for value in request.args]
    return request.name, args, {k: from_payload(v, limits) for k, v in request.kwargs.items()}


def read_response(message: bytes, limits: Limits = _DEFAULT) -> Any:
    """Return the result in a response from an untrusted source. Raises as `read_request`."""
    return from_payload(_parsed("KaggleEvaluationResponse", message, limits).payload, limits)


def _fill(payload: Any, value: Any, where: str, key: int | str) -> None:
    try:
        fill(payload, value)
    except WireError as error:
        raise error.under(key).under(where) from None


def _serialized(message: Any) -> bytes:
    made: bytes = message.SerializeToString()
    return made


def _parsed(name: str, message: bytes, limits: Limits) -> Any:
    if len(message) > limits.nbytes:
        raise WireError(
            f"expected at most {limits.nbytes} bytes (Limits.nbytes), got {len(message)}"
        )
    # A short message cannot have many fields, and is parsed faster than counted.
    if len(message) > _SHORT:
        _check_fields(message, name, 4 * limits.items)
    made = message_class(name)()
    from google.protobuf.message import DecodeError  # imported late, like the message classes

    try:
        made.ParseFromString(message)
    # RuntimeError and ValueError: protobuf's implementations differ in what they raise.
    except (DecodeError, ValueError, RuntimeError) as error:
        raise WireError(f"expected a protobuf message: {str(error)[:200]}") from None
    return made


def _check_fields(message: bytes, name: str, most: int) -> None:
    """Raise WireError if a message has more than `most` fields, nested messages included.

    A field of two bytes takes 40 bytes of memory once parsed. Counting stops at damaged parts, which the
    parser then reports.
    """
    left = most
    inside = [(0, len(message), name)]
    while inside:
        at, end, name = inside.pop()
        parts = _PARTS[name]
        while at < end:
            left -= 1
            if left < 0:
                raise WireError(f"more than {most} fields (Limits.items)")
            key, at = _varint(message, at, end)
            kind = key & 7
            if kind == _BYTES:
                size, at = _varint(message, at, end)
                if key >> 3 in parts:
                    inside.append((at, min(at + size, end), parts[key >> 3]))
                at += size
            elif kind == _VARINT:
                _, at = _varint(message, at, end)
            elif kind in _FIXED:
                at += _FIXED[kind]
            else:  # a group, which none of these messages has
                at = end


def _varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a variable-length integer and the position after it."""
    value = shift = 0
    while at < end and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, end
