"""Calls and their results by protobuf; `kaggle_evaluation.proto` has the layout."""

from parllel.remote.proto.messages import (
    read_request,
    read_response,
    request_bytes,
    response_bytes,
)
from parllel.remote.proto.payload import from_payload, to_payload

__all__ = [
    "from_payload",
    "read_request",
    "read_response",
    "request_bytes",
    "response_bytes",
    "to_payload",
]
