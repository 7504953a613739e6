"""Requests and responses as bytes, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parllel.distributed.remote.proto.count_fields import check_fields
from parllel.distributed.remote.proto.descriptors import message_class
from parllel.distributed.remote.proto.payload import fill, from_payload
from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.wire_error import WireError

_DEFAULT = Limits(nbytes=16 << 20)
_SHORT = 1 << 18


def request_bytes(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return a call as bytes.

    name: of the function.

    Raises:
        WireError: names the path of an argument that has no payload.
    """
    request = message_class("KaggleEvaluationRequest")(name=name)
    for i, value in enumerate(args):
        _fill(request.args.add(), value, "args", i)
    for key, value in kwargs.items():
        _fill(request.kwargs[key], value, "kwargs", key)
    return _serialized(request)


def response_bytes(value: Any) -> bytes:
    """Return a result as bytes; raise as `request_bytes` does."""
    response = message_class("KaggleEvaluationResponse")()
    fill(response.payload, value)
    return _serialized(response)


def read_request(
    message: bytes, limits: Limits = _DEFAULT
) -> tuple[str, list[Any], dict[str, Any]]:
    """Return name, arguments and keyword arguments of a call, from whoever it may come.

    Raises:
        WireError: if the message is damaged, or exceeds a limit.
    """
    request = _parsed("KaggleEvaluationRequest", message, limits)
    args = [from_payload(value, limits) for value in request.args]
    return request.name, args, {k: from_payload(v, limits) for k, v in request.kwargs.items()}


def read_response(message: bytes, limits: Limits = _DEFAULT) -> Any:
    """Return the result in a response, from whoever it may come; raise as `read_request` does."""
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
        raise WireError(f"{len(message)} bytes, of {limits.nbytes} allowed (Limits.nbytes)")
    # A short one cannot have many, and is parsed in far less time than it takes to count.
    if len(message) > _SHORT:
        check_fields(message, name, 4 * limits.items)
    made = message_class(name)()
    from google.protobuf.message import DecodeError  # as the classes: only where it is used

    try:
        made.ParseFromString(message)
    # RuntimeError and ValueError: the implementations of protobuf differ in what they raise.
    except (DecodeError, ValueError, RuntimeError) as error:
        raise WireError(f"expected a message of protobuf: {str(error)[:200]}") from None
    return made
