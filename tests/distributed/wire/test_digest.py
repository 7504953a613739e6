from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from wire_trees import TREES, bits

from parllel.arrays import Array
from parllel.buffers import NamedTuple
from parllel.distributed.wire import WireError, decode, digest, encode


@given(TREES)
def test_what_arrives_has_the_same_digest(tree):
    assert digest(decode(encode(tree))) == digest(tree)


@given(TREES, TREES)
def test_other_trees_have_other_digests(one, other):
    if bits(one) != bits(other):
        # As lists, so that both orders of a dict and all NaNs are told apart before they are compared.
        same = digest(one) == digest(other)
        assert same == (canonical(one) == canonical(other))


def canonical(value):
    """Return what a digest depends on, in other words."""
    kind = type(value)
    if isinstance(value, NamedTuple):
        return "node", [(name, canonical(item)) for name, item in value._asdict().items()]
    if kind is dict:
        return "dict", {(type(key).__name__, key): canonical(item) for key, item in value.items()}
    if kind in (list, tuple):
        return kind, [canonical(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        array = array.astype(array.dtype.newbyteorder("="))
        text = [[repr(part.real), repr(part.imag)] for part in array.reshape(-1).tolist()]
        return isinstance(value, np.ndarray), array.dtype.str, array.shape, text
    return kind, "nan" if value != value else struct.pack("d", value) if kind is float else value


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (None, "e22d04839b2770aaa21b7fa77407d5fd10cff3ea8e48d30406d87b3f306f9218"),
        (
            {"b": 1, "a": [True, -0.0, "é", b"\x00"], 3: (1 << 70, -1)},
            "e13965d169b5c2b949fb0b919eec3240bd1410fef3461e913659f5ebaaaf0ddb",
        ),
        (
            {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.float16(0.5)},
            "ba731a2e272b7694681e0a230e31190831eaecfa0d34caf619c7653c44094d36",
        ),
        (
            NamedTuple(done=np.array([True]), z=np.array(math.nan * 1j)),
            "aef7530ab094992b13e5dfcf7f166986a94a0a0fab7bf5d08609e9a8c218b98a",
        ),
    ],
)
def test_known_digests(tree, expected):
    """They may have been kept by users: none may ever change."""
    assert digest(tree) == expected


NAN = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))),
        (np.arange(6)[::2], np.array([0, 2, 4])),
        (np.arange(3, dtype="<i4"), np.arange(3, dtype=">i4")),
        (NAN[:1], NAN[1:]),
        (NAN[0], NAN[1]),
        (float(NAN[0]), float(NAN[1])),
        (NAN.view(np.complex128), NAN[::-1].copy().view(np.complex128)),
        (np.zeros((3, 2), np.float32), Array((3, 2), np.float32)),
        (np.longlong(1), np.int64(1)),
    ],
)
def test_what_makes_no_difference(one, other):
    if isinstance(other, Array):
        other[...] = 0
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (np.zeros(1), -np.zeros(1)),
        ([1, 2], (1, 2)),
        ({"a": 1}, NamedTuple(a=1)),
        (NamedTuple(a=1, b=2), NamedTuple(b=2, a=1)),
        ({"1": 0}, {1: 0}),
        ("a", b"a"),
        (b"a", bytearray(b"a")),
        (np.float32(1), np.array(1, np.float32)),
        (np.float32(1), np.float64(1)),
        (np.zeros(4), np.zeros((2, 2))),
        (np.zeros((0, 3)), np.zeros((3, 0))),
        (np.zeros(2, np.int32), np.zeros(1, np.int64)),
        (["ab", "c"], ["a", "bc"]),
        ([[], []], [[[]]]),
        (-(1 << 64), 1 << 64),
    ],
)
def test_what_makes_a_difference(one, other):
    assert digest(one) != digest(other)


def test_what_cannot_be_sent_has_no_digest():
    with pytest.raises(WireError, match=r"^a\[1\]: expected None.*, got set"):
        digest({"a": [1, {2}]})
    with pytest.raises(WireError, match=r"^a\[0\]: expected text, got a lone surrogate"):
        digest({"a": ["\ud800"]})
