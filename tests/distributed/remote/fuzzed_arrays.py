"""A program that reads made-up arrays with little memory, and prints "bounded" at its end."""

from __future__ import annotations

import resource
from pathlib import Path

import msgspec
import numpy as np
from foreign_protobuf import Npy, npy_of, response
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parllel.distributed.remote.plain_values import plain
from parllel.distributed.remote.proto import read_response
from parllel.distributed.remote.remote_reply import action_in
from parllel.distributed.wire import WireError, decode, encode

MORE = 400 << 20  # bytes of address space beyond those of the libraries
POWERS = st.sampled_from([1 << n for n in range(2, 64)])
MANY = st.lists(st.sampled_from([0, 1, 1 << 31]), max_size=70)
SHAPES = MANY | st.lists(
    st.integers(-2, 3) | POWERS | st.integers(0, 10**30) | st.just(True) | st.just(2.5), max_size=6
)
LENGTHS = MANY | st.lists(st.integers(-2, 3) | POWERS | st.just(True), max_size=6)
DESCRS = st.sampled_from(
    [
        *("<f8", "|u1", "<f2", "|b1", "<c16", "<f16", "|O", "|V1000000", "|V2147483647", "|S0"),
        *("<U0", "|S2147483647", "<U536870911", "<M8[ns]", "<m8", "|T16", 3),
        [("a", "<f8", (1 << 20, 1 << 20))],
        [("a", "|V99999999")],
    ]
)
FUZZED = settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def as_action(value):
    try:
        plain(value)
    except WireError:
        return


@FUZZED
@given(SHAPES, DESCRS, st.binary(max_size=40))
def protobuf(shape, descr, data):
    try:
        reply = read_response(response({"action": Npy(npy_of(tuple(shape), descr, data))}))
    except WireError:
        return
    as_action(action_in(reply))


@FUZZED
@given(LENGTHS, st.integers(0, 127), st.binary(max_size=64))
def wire(shape, code, elements):
    ext = msgspec.msgpack.Ext
    message = msgspec.msgpack.encode([1, [ext(2, b""), *shape, ext(code, elements)]])
    try:
        value = decode(message)
    except WireError:
        return
    as_action(value)
    encode(value)


if __name__ == "__main__":
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MORE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    protobuf()
    wire()
    as_action(np.zeros((20_000_000, 0)))
    print("bounded")
