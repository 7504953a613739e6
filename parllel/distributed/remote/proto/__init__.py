"""Calls and their results by protobuf; `kaggle_evaluation.proto` has the layout."""

from parllel.distributed.remote.proto.messages import (
    read_request,
    read_response,
    request_bytes,
    response_bytes,
)
from parllel.distributed.remote.proto.payload import from_payload, to_payload

__all__ = [
    "from_payload",
    "read_request",
    "read_response",
    "request_bytes",
    "response_bytes",
    "to_payload",
]
