"""Calls and results as protobuf messages; `kaggle_evaluation.proto` defines them."""

from parllel.distributed.remote.proto.messages import read_request, read_response, request_bytes

__all__ = [
    "read_request",
    "read_response",
    "request_bytes",
]
