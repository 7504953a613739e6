"""Calls and their results by protobuf; `kaggle_evaluation.proto` has the layout."""

from parllel.distributed.remote.proto.messages import read_request, read_response, request_bytes

__all__ = [
    "read_request",
    "read_response",
    "request_bytes",
]
