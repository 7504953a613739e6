"""Payloads of protobuf: what comes back is what was sent, and what was not sent does no harm."""

from __future__ import annotations

import math
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import parllel.distributed.remote.proto as proto
from parllel.distributed.remote.proto import read_request, read_response, request_bytes
from parllel.distributed.remote.proto.messages import response_bytes
from parllel.distributed.remote.proto.payload import from_payload, to_payload
from parllel.distributed.wire import Limits, WireError

FOLDER = Path(proto.__file__).parent
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(sizes=(16, 32, 64), endianness="?"),
    hnp.complex_number_dtypes(),
    hnp.unicode_string_dtypes(max_len=4),
)
ARRAYS = DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_side=3)))
LEAVES = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(), st.binary()),
    *(st.floats(width=32), ARRAYS, ARRAYS.filter(lambda a: a.size).map(lambda a: a.flat[0])),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(), inner, max_size=4),
    ),
    max_leaves=12,
)


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a, math.copysign(1, a)) == (
            b,
            math.copysign(1, b),
        )
    return a == b


@given(VALUES)
def test_what_comes_back_is_what_was_sent(value):
    assert same(read_response(response_bytes(value)), value)


@given(st.text(), st.lists(VALUES, max_size=3), st.dictionaries(st.text(), VALUES, max_size=3))
def test_calls_come_back(name, args, kwargs):
    found = read_request(request_bytes(name, args, kwargs))
    assert found[0] == name
    assert same(found[1], args)
    assert same(found[2], kwargs)


def test_details():
    assert from_payload(to_payload(0.1)) == float(np.float32(0.1))
    assert from_payload(to_payload(bytearray(b"a"))) == b"a"
    array = from_payload(to_payload(np.asfortranarray(np.arange(6.0).reshape(2, 3))))
    array[0, 0] = 7
    assert array.tolist() == [[7, 1, 2], [3, 4, 5]]
    assert type(from_payload(to_payload(np.float64(0.1)))) is np.float64
    # In the bytes that any other implementation would write: field 3, zigzag.
    assert response_bytes(-1) == b"\x0a\x02\x18\x01"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": [1, {2}]}, r"^a\[1\]: expected None, bool, .*, got builtins.set"),
        (2**63, "expected an int that fits in 64 bits, got one of 65"),
        (1e39, "expected a float that fits in a float32, got 1e[+]39"),
        ({1: 2}, r"^\[1\]: expected keys of type str, got int"),
        ("\ud800", "a lone surrogate"),
        (np.array([object()]), "expected an array of numbers or text, got one of object"),
        (np.zeros(1, [("a", int)]), "expected an array of numbers or text"),
    ],
)
def test_refusals(value, said):
    with pytest.raises(WireError, match=said):
        response_bytes(value)


def test_a_list_that_holds_itself_is_refused():
    made = []
    made.append(made)
    with pytest.raises(
        WireError, match="nested more than 30 levels deep; perhaps one contains itself"
    ):
        response_bytes(made)


def test_frames_are_refused_in_one_sentence():
    payload = to_payload(1)
    payload.pandas_frame = b"PAR1"
    with pytest.raises(WireError, match="got a frame of pandas; send its columns"):
        from_payload(payload)
    with pytest.raises(WireError, match="expected a payload with a value"):
        read_response(b"")


@settings(max_examples=150)
@given(VALUES, st.data())
def test_damaged_messages_raise_one_kind_of_error(value, data):
    message = bytearray(request_bytes("process_turn", [value], {"a": value}))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(message) - 1))
        message[place] = data.draw(st.integers(0, 255))
    del message[data.draw(st.integers(0, len(message))) :]
    try:
        name, args, kwargs = read_request(bytes(message))
    except WireError:
        return
    assert (type(name), type(args), type(kwargs)) == (str, list, dict)


def test_memory_is_bounded():
    with pytest.raises(WireError, match="expected at most 10 bytes"):
        read_response(response_bytes("x" * 100), Limits(nbytes=10))
    with pytest.raises(WireError, match="more values than Limits"):
        read_response(response_bytes([0] * 100), Limits(items=100))
    # A value takes two bytes on the way.
    giant = response_bytes([None] * 15_000)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="more values than Limits"):
            read_response(giant, Limits(items=10_000))
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_a_message_of_many_fields_is_refused_before_it_is_parsed():
    def field(number, body):
        size, head = len(body), bytearray()
        while size > 127:
            head.append(size & 127 | 128)
            size >>= 7
        return bytes([number << 3 | 2, *head, size]) + body

    for bomb in (
        field(1, field(6, field(1, b"") * 140_000)),
        field(1, field(8, field(1, field(2, b"")) * 70_000)),
        field(1, b"\x28\x01" * 140_000),
    ):
        with pytest.raises(WireError, match=r"more than 40000 fields \(Limits.items\)"):
            read_response(bomb, Limits(items=10_000))
    # Counting does not mistake what is long for what is much.
    large = {"a": np.zeros(10**6), "b": ["x" * 10**6, {"c": [1] * 90_000}]}
    assert read_response(response_bytes(large))["b"][1]["c"] == [1] * 90_000


def test_the_descriptor_is_that_of_the_proto_file():
    """Compared by what both say of messages and fields, as there need not be a protoc here."""
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString((FOLDER / "kaggle_evaluation.binpb").read_bytes())
    (file,) = files.file
    types = descriptor_pb2.FieldDescriptorProto
    found = {}
    for message in file.message_type:
        nested = {
            f".{file.package}.{message.name}.{kind.name}": kind for kind in message.nested_type
        }
        fields = found[message.name] = []
        for field in message.field:
            kind = field.type_name.rpartition(".")[2]
            if field.type != types.TYPE_MESSAGE:
                kind = types.Type.Name(field.type).removeprefix("TYPE_").lower()
            if field.type_name in nested:
                key, value = nested[field.type_name].field
                assert key.type == types.TYPE_STRING
                kind = f"map<string, {value.type_name.rpartition('.')[2]}>"
            elif field.label == types.LABEL_REPEATED:
                kind = f"repeated {kind}"
            fields.append((kind, field.name, field.number, field.HasField("oneof_index")))
    text = re.sub(r"//.*", "", (FOLDER / "kaggle_evaluation.proto").read_text())
    assert f"package {file.package};" in text
    assert f'syntax = "{file.syntax}";' in text
    written = {}
    for name, body in re.findall(r"message (\w+) \{(.*?)\n\}", text, re.S):
        oneof = re.search(r"oneof value \{(.*?)\}", body, re.S)
        written[name] = [
            (kind, field, int(number), bool(oneof) and start > oneof.start())
            for kind, field, number, start in (
                (*match.groups(), match.start())
                for match in re.finditer(r"((?:repeated )?[\w<>, ]+?) (\w+) = (\d+);", body)
            )
        ]
    assert {
        name: [(k.strip(), *rest) for k, *rest in fields] for name, fields in written.items()
    } == found
