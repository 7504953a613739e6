"""Message classes, from the compiled form of `kaggle_evaluation.proto` in this folder.

`protoc --descriptor_set_out=kaggle_evaluation.binpb kaggle_evaluation.proto` creates it. Generated Python
code would work with one major version of protobuf only.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = "kaggle_evaluation_client"


@cache
def message_class(name: str) -> Any:
    """Return the class of a message of the package, such as "Payload"."""
    return _classes()[name]


@cache
def _classes() -> dict[str, Any]:
    # Imported here, as most processes that import this package never send such a message.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(Path(__file__).with_name("kaggle_evaluation.binpb").read_bytes())
    # A separate pool: another package may define messages of these names in the shared default pool.
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{message.name}")
        )
        for file in files.file
        for message in file.message_type
    }
