from __future__ import annotations

import collections
import enum
import math
import typing

import numpy as np
import pytest
from hypothesis import example, given
from wire_trees import TREES, bits

from parllel.arrays import LazyFramesArray, RotatingArray, SharedMemoryArray
from parllel.buffers import NamedArrayTuple, NamedTuple
from parllel.distributed.wire import WireError, decode, encode


@given(TREES)
@example(np.zeros((0, 1 << 31)))
@example([[], (), {}, NamedTuple()])
@example(np.float64(-0.0))
def test_what_is_sent_arrives(tree):
    assert bits(decode(encode(tree))) == bits(tree)


@given(TREES)
def test_a_message_is_the_same_each_time(tree):
    message = encode(tree)
    assert encode(decode(message)) == message


def test_arrays_of_every_size_arrive():
    for n in (0, 1, 4095, 4096, 4097, 100_000):
        array = np.arange(n, dtype=np.uint8)
        for sent in (array, array[::2], array.reshape(-1, 1), array[::-1]):
            assert bits(decode(encode([sent]))) == bits([sent])


def test_arrays_of_parllel_arrive_by_value():
    shared = SharedMemoryArray((3, 2, 4), np.float32)
    rotating = RotatingArray((3, 2), np.int64, padding=1)
    try:
        shared[...] = np.arange(24).reshape(3, 2, 4)
        rotating[...] = 5
        node = NamedArrayTuple(observation=shared, reward=rotating, nothing=None)
        arrived = decode(encode({"all": node, "row": node[1], "cell": shared[2, 1, :2]}))
        assert type(arrived["all"]) is NamedTuple
        assert bits(arrived["all"].observation) == bits(np.asarray(shared))
        assert bits(arrived["all"].reward) == bits(np.full((3, 2), 5))
        assert arrived["all"].nothing is None
        assert bits(arrived["row"].observation) == bits(np.asarray(shared)[1])
        assert bits(arrived["cell"]) == bits(np.asarray(shared)[2, 1, :2])
    finally:
        shared.close()


def test_stacked_frames_arrive_as_their_stacks():
    frames = LazyFramesArray((4, 2, 3, 5), np.uint8)
    frames[...] = 7
    assert bits(decode(encode(frames))) == bits(np.asarray(frames))


def test_arrays_that_arrive_are_the_receivers_own():
    message = bytearray(encode({"flat": np.zeros(2000), "flags": np.ones((3, 3), bool)}))
    arrived = decode(message)
    message[:] = bytes(len(message))  # not refused, so no view of it is left
    message.append(0)
    for array in arrived.values():
        assert array.flags.writeable
        assert array.flags.aligned
        assert array.flags.c_contiguous
    assert arrived["flags"].all()
    assert not arrived["flat"].any()


def test_names_of_dtypes_do_not_matter():
    assert decode(encode(np.longlong(3))) == 3
    assert decode(encode(np.array([3], np.ulonglong))).dtype == np.uint64
    assert decode(encode(np.zeros(1, np.dtype("f4", metadata={"a": 1})))).dtype == np.float32


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (None, "92 01 c0"),
        ({"a": 1, -2: True}, "92 01 82 a1 61 01 fe c3"),
        ([1.5, b"\x00", "é"], "92 01 93 cb 3ff8000000000000 c4 01 00 a2 c3a9"),
        ((), "92 01 91 c7 00 00"),
        ((None, []), "92 01 93 c7 00 00 c0 90"),
        (NamedTuple(x=3), "92 01 93 c7 00 01 a1 78 03"),
        (1 << 64, "92 01 c7 09 03 01 0000000000000000"),
        (-(1 << 63) - 1, "92 01 c7 09 03 ff 7fffffffffffffff"),
        (bytearray(b"ab"), "92 01 d5 04 61 62"),
        (np.array([True, False]), "92 01 d5 10 01 00"),
        (np.array([1, -1], "<i2"), "92 01 d6 13 01 00 ff ff"),
        (np.array([1, -1], ">i2"), "92 01 d6 23 00 01 ff ff"),
        (np.array([[1.0]], "<f4"), "92 01 94 c7 00 02 01 01 d6 18 0000803f"),
        (np.array(1j, "<c8"), "92 01 92 c7 00 02 d7 1c 00000000 0000803f"),
        (np.float64(-0.0), "92 01 d7 5b 0000000000000080"),
        (np.uint8(255), "92 01 d4 52 ff"),
    ],
)
def test_the_format_is_kept(tree, message):
    """Messages of earlier releases stay readable: a change here needs another version byte."""
    sent = bytes.fromhex(message)
    assert encode(tree) == sent
    assert bits(decode(sent)) == bits(tree)


def test_codes_are_kept():
    from parllel.distributed.wire.codes import CODES

    small = {"|b1": 16, "|i1": 17, "|u1": 18}
    large = ("i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", "c8", "c16")
    expected = small | {f"<{kind}": 19 + i for i, kind in enumerate(large)}
    expected |= {f">{kind}": 35 + i for i, kind in enumerate(large)}
    assert {dtype.str: code for dtype, code in CODES.items()} == {
        np.dtype(name).str: code for name, code in expected.items()
    }


class Point(typing.NamedTuple):
    x: int


class Color(enum.IntEnum):
    RED = 1


LOOP: list[object] = []
LOOP.append({"again": LOOP})


@pytest.mark.parametrize(
    ("tree", "match"),
    [
        (object(), r"^expected None, bool.*, got object; convert it"),
        ({"info": {"renderer": print}}, r"^info\.renderer: expected None.* builtin_function"),
        ([1, (2, {"a b": {3}})], r"^\[1\]\[1\]\['a b'\]: expected None.*, got set;"),
        (NamedTuple(position=[0, Point(1)]), r"^position\[1\]: .*, got test_message\.Point;"),
        ({3: collections.OrderedDict()}, r"^\[3\]: .*, got collections\.OrderedDict;"),
        ([Color.RED], r"^\[0\]: .*, got test_message\.Color;"),
        (1j, "got complex;"),
        (np.ma.zeros(3), "got numpy.ma.*MaskedArray;"),
        ({"a": np.array([None])}, r"^a: expected a numeric dtype .*, got object; send lists"),
        (np.zeros(2, [("x", int)]), r"got \[\('x', '.i8'\)\]; send .* one array per field"),
        (np.array("x"), "got <U1; send lists, str or bytes"),
        (np.datetime64("2020-01-01"), r"got datetime64\[D\]; send"),
        ({None: 1}, r"^expected keys of type str or 64-bit int, got None \(NoneType\)"),
        ([{True: 1}], r"^\[0\]: expected keys .*, got True \(bool\)"),
        ({1 << 64: 1}, r"expected keys .*, got 18446744073709551616 \(int\)"),
        ({"x": "a\ud800"}, r"^x: expected text, got a lone surrogate at 1 of 'a\\ud800'"),
        ({"a\udfff": 1}, r"^expected text, got a lone surrogate at 1"),
        (LOOP, r"again\[0\]\.again: values are nested more than 64 levels deep; perhaps"),
    ],
)
def test_what_cannot_be_sent_is_named(tree, match):
    with pytest.raises(WireError, match=match):
        encode(tree)


@pytest.mark.skipif(np.longdouble(0).itemsize == 8, reason="longdouble is float64 here")
def test_what_differs_between_machines_is_refused():
    for value in (np.longdouble(1), np.zeros(1, np.longdouble), np.zeros(1, np.clongdouble)):
        with pytest.raises(WireError, match="which is not the same on every machine; use astype"):
            encode(value)


def nested(depth, make=list):
    value = make([1])
    for _ in range(depth - 1):
        value = make([value])
    return value


@pytest.mark.parametrize(
    "make", [list, tuple, lambda items: {"k": items[0]}, lambda x: NamedTuple(x=x[0])]
)
def test_depth(make):
    assert bits(decode(encode(nested(64, make)))) == bits(nested(64, make))
    with pytest.raises(WireError, match="nested more than 64 levels deep"):
        encode(nested(65, make))


def test_an_array_of_several_dimensions_counts_as_a_level():
    deepest = innermost = nested(62)
    while type(innermost[0]) is list:
        innermost = innermost[0]
    innermost[0] = np.zeros((2, 2))
    decode(encode([deepest]))
    with pytest.raises(WireError, match="nested more than 64 levels deep"):
        encode([[deepest]])


def called_deep(function, depth):
    return function() if depth == 0 else called_deep(function, depth - 1)


def test_a_stack_that_is_nearly_full_is_an_error_like_others():
    tree = nested(64)
    message = encode(tree)
    for work in (lambda: encode(tree), lambda: decode(message)):
        errors = []
        for depth in range(800, 1000, 10):
            try:
                called_deep(work, depth)
            except WireError as error:
                errors.append(str(error))
            except RecursionError:
                break  # there was no room for the call itself
        assert errors
        assert set(errors) == {"values are nested too deeply for the Python stack"}


def test_nan_keeps_its_bits():
    payload = np.array([0x7FF0000000000001, 0xFFF8000000000123], np.uint64).view(np.float64)
    assert bits(decode(encode(payload))) == bits(payload)
    assert math.isnan(decode(encode(math.nan)))


def test_an_error_survives_pickling():
    import pickle

    error = WireError("wrong").under(3).under("a")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "a[3]: wrong"
    assert isinstance(error, ValueError)


def test_threads_may_encode_and_decode_at_once():
    from concurrent.futures import ThreadPoolExecutor

    trees = [{"n": n, "x": np.full((n, 2), n), "t": (n, [n] * n)} for n in range(1, 40)]

    def all_come_back(_):
        return all(bits(decode(encode(tree))) == bits(tree) for tree in trees)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(all_come_back, range(20)))
