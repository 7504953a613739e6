"""A server of agents by protobuf that shares no code with the package: its messages are declared here."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_LEAVES = {
    "str": (1, _FIELD.TYPE_STRING),
    "bool": (2, _FIELD.TYPE_BOOL),
    "int": (3, _FIELD.TYPE_SINT64),
    "float": (4, _FIELD.TYPE_FLOAT),
    "none": (5, _FIELD.TYPE_BOOL),
    "numpy_array": (13, _FIELD.TYPE_BYTES),
    "numpy_scalar": (14, _FIELD.TYPE_BYTES),
    "raw_bytes": (15, _FIELD.TYPE_BYTES),
}


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="foreign.proto", package="foreign", syntax="proto3"
    )

    def add(name: str) -> Any:
        message = file.message_type.add()
        message.name = name
        return message

    def field(message: Any, name: str, number: int, kind: Any, *, many: bool = False) -> None:
        label = _FIELD.LABEL_REPEATED if many else _FIELD.LABEL_OPTIONAL
        made = message.field.add(name=name, number=number, label=label)
        if isinstance(kind, str):
            made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".foreign.{kind}"
        else:
            made.type = kind

    payload = add("Payload")
    for name, (number, kind) in _LEAVES.items():
        field(payload, name, number, kind)
    for name, number, kind in (("list", 6, "List"), ("tuple", 7, "List"), ("dict", 8, "Map")):
        field(payload, name, number, kind)
    payload.oneof_decl.add(name="value")
    for one in payload.field:
        one.oneof_index = 0
    field(add("List"), "payloads", 1, "Payload", many=True)
    field(add("Map"), "payload_map", 1, "Entry", many=True)
    entry = add("Entry")  # of a map, which is a repeated message on the wire
    field(entry, "key", 1, _FIELD.TYPE_STRING)
    field(entry, "value", 2, "Payload")
    request = add("Request")
    field(request, "name", 1, _FIELD.TYPE_STRING)
    field(request, "args", 2, "Payload", many=True)
    field(add("Response"), "payload", 1, "Payload")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"foreign.{message.name}")
        )
        for message in file.message_type
    }


_CLASSES = _messages()


def npy(array: np.ndarray[Any, Any] | np.generic) -> bytes:
    """Return what numpy writes to a file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def npy_of(shape: object, descr: object = "<f8", data: bytes = b"") -> bytes:
    """Return a file of numpy that says what is wanted, true or not."""
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


class Npy(bytes):
    """A file of numpy that is sent as an array, as it is."""


def payload_of(value: Any) -> Any:
    """Return a value as a message."""
    made = _CLASSES["Payload"]()
    if value is None:
        made.none = True
    elif isinstance(value, Npy):
        made.numpy_array = value
    elif isinstance(value, np.generic):
        made.numpy_scalar = npy(value)
    elif isinstance(value, np.ndarray):
        made.numpy_array = npy(value)
    elif isinstance(value, dict):
        made.dict.SetInParent()
        for key, item in value.items():
            made.dict.payload_map.add(key=key, value=payload_of(item))
    elif isinstance(value, (list, tuple)):
        parts = made.tuple if isinstance(value, tuple) else made.list
        parts.SetInParent()
        parts.payloads.extend(map(payload_of, value))
    else:
        name = {bytes: "raw_bytes"}.get(type(value), type(value).__name__)
        setattr(made, name, value)
    return made


def value_of(payload: Any) -> Any:
    """Return the value of a message."""
    name = payload.WhichOneof("value")
    inner = getattr(payload, name)
    if name in ("numpy_array", "numpy_scalar"):
        return np.load(io.BytesIO(inner), allow_pickle=False)
    if name == "dict":
        return {entry.key: value_of(entry.value) for entry in inner.payload_map}
    if name in ("list", "tuple"):
        return [value_of(item) for item in inner.payloads]
    return None if name == "none" else inner


def response(value: Any) -> bytes:
    """Return a reply with a value."""
    return _CLASSES["Response"](payload=payload_of(value)).SerializeToString()


def request(name: str, *values: Any) -> bytes:
    """Return a call."""
    return _CLASSES["Request"](name=name, args=map(payload_of, values)).SerializeToString()


def value_of_response(data: bytes) -> Any:
    """Return the value of a reply."""
    return value_of(_CLASSES["Response"].FromString(data).payload)


@contextlib.contextmanager
def foreign_server(reply: Callable[[dict[str, Any]], Any]) -> Iterator[str]:
    """Serve turns; `reply(observation)` returns the value that is sent back. Yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked = _CLASSES["Request"].FromString(body)
            assert asked.name == "process_turn"
            data = response(reply(value_of(asked.args[0])))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
