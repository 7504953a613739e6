from __future__ import annotations

import json
import math
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parllel.distributed.wire import Limits, WireError, json_bytes, parse_json

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 300), 1 << 300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner))
)


@given(VALUES)
@example({"a": [-0.0, "\u2028é\x00", 1e308, 5e-324]})
def test_values_come_back(value):
    text = json_bytes(value)
    assert repr(parse_json(text)) == repr(value)
    assert repr(parse_json(text.decode())) == repr(value)
    # As others write it, with escapes and spaces.
    assert repr(parse_json(json.dumps(value, indent=1))) == repr(value)


def test_bytes_are_compact_and_utf8():
    assert json_bytes({"a": (1, "é"), "b": []}) == '{"a":[1,"é"],"b":[]}'.encode()


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (
            {"a": [0.0, math.nan]},
            r"^a\[1\]: expected a finite number, got nan; send it as a string",
        ),
        ([-math.inf], r"^\[0\]: expected a finite number, got -inf"),
        ({"a": {1}}, r"^a: expected None.*, got builtins.set; to_json converts"),
        ([b"a"], r"^\[0\]: expected None.*, got builtins.bytes"),
        ({1: 2}, "^expected keys of type str, got 1"),
        ({"a": ["\ud800"]}, r"^a\[0\]: expected text, got a lone surrogate in '\\ud800'"),
        ({"\udc00": 1}, "^expected text, got a lone surrogate"),
    ],
)
def test_what_is_not_json_is_named(value, match):
    with pytest.raises(WireError, match=match):
        json_bytes(value)


def test_what_holds_itself_is_refused():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(
        WireError, match=r"^\[0\].*nested more than 64 levels deep; perhaps one contains itself"
    ):
        json_bytes(loop)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "expected JSON: Expecting value"),
        ("{'a': 1}", "expected JSON: Expecting property name"),
        ("[1] [2]", "expected JSON: Extra data"),
        ("[1", "expected JSON: Expecting ',' delimiter"),
        ('"abc', "expected JSON: Unterminated string"),
        ("NaN", 'expected JSON, which has no NaN; send the string "NaN"'),
        ("[-Infinity]", 'expected JSON, which has no -Infinity; send the string "-Infinity"'),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "the key 'c' occurs twice in an object"),
        ('{"a": 1, "\\u0061": 2}', "the key 'a' occurs twice in an object"),
        ("[1e999]", "expected a number that fits in a float64, got 1e999"),
        ("1" * 1001, "expected an int of at most 1000 digits, got 1001"),
        (b'["\xff"]', "expected JSON in UTF-8: 'utf-8' codec can't decode byte 0xff"),
        ('["\\ud800"]', "expected JSON in UTF-8: 'utf-8' codec can't encode character"),
        ('["\\uDC00"]', "expected JSON in UTF-8: 'utf-8' codec can't encode character"),
        ('["\ud800"]', "expected JSON in UTF-8: 'utf-8' codec can't encode character"),
        ('["\n"]', "expected JSON: Invalid control character"),
        (b"\xef\xbb\xbf[]", "expected JSON: Expecting value"),
    ],
)
def test_what_is_not_read_is_named(text, match):
    with pytest.raises(WireError, match=match):
        parse_json(text)


def test_limits():
    text = '{"a": [1, 2, {"b": "[[[[,,,,::::\\""}], "c": 3}'
    exact = Limits(nbytes=len(text), depth=3, items=10)
    assert parse_json(text, exact) == json.loads(text)
    for limits, match in (
        (Limits(nbytes=len(text) - 1), rf"at most {len(text) - 1} bytes .*, got {len(text)}"),
        (Limits(depth=2), "nested more deeply than Limits.depth allows"),
        (Limits(items=9), r"more than 9 values \(Limits.items\)"),
    ):
        with pytest.raises(WireError, match=match):
            parse_json(text, limits)
    with pytest.raises(WireError, match=r"at most 1 bytes \(Limits.nbytes\), got 2"):
        parse_json("é", Limits(nbytes=1))


def test_depth_counts_what_is_open_at_once():
    assert parse_json("[" + "[]," * 99 + "[]]", Limits(depth=2))[99] == []
    for text in ("[" * 100_000, "[" * 65 + "]" * 65, '{"a":' * 65 + "1" + "}" * 65):
        with pytest.raises(
            WireError,
            match=r"nested more deeply than Limits.depth allows, which is 64|more than 100000 values",
        ):
            parse_json(text)


@pytest.mark.parametrize(
    "text",
    [
        '"' + '\\"' * 400_000 + "\\",
        '"' * 400_001,
        '"\\' * 400_000,
        "\\" * 400_000,
        "[" + "9" * 400_000,
        '"\\ud83d' + "x" * 400_000,
    ],
)
def test_long_texts_that_make_no_sense_are_refused(text):
    """In time that grows with their length: with its square they would take minutes."""
    with pytest.raises(WireError, match="expected"):
        parse_json(text)


@pytest.mark.parametrize("escape", ["\\\\", '\\"', "\\n", '\\\\\\"'])
def test_escapes_take_no_more_memory_than_other_letters(escape):
    text = '"' + escape * 100_000 + '"'
    tracemalloc.start()
    try:
        assert parse_json(text) == json.loads(text)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(text)
    finally:
        tracemalloc.stop()


def test_pairs_of_surrogates_are_text():
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"


@given(st.binary(max_size=40))
@example(b"[[]}")
def test_any_bytes_are_values_or_one_kind_of_error(data):
    try:
        value = parse_json(data)
    except WireError:
        return
    assert parse_json(json_bytes(value)) == value
