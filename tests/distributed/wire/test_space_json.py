from __future__ import annotations

import json
import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from wire_trees import bits

from parllel.arrays import Array
from parllel.buffers import NamedArrayTuple, NamedTuple
from parllel.distributed.wire import WireError, from_json, json_bytes, parse_json, to_json

INF = float("inf")
NESTED = spaces.Dict(
    {
        "position": spaces.Box(-INF, INF, (2, 3), np.float32),
        "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
        "door": spaces.Box(-3.0, 3.0, (), np.float64),
        "action": spaces.Discrete(5, start=-2),
        "actions": spaces.MultiDiscrete([[2, 3], [4, 5]]),
        "flags": spaces.MultiBinary((2, 2)),
        "open": spaces.Box(0, 1, (3,), bool),
        "name": spaces.Text(8),
        "pair": spaces.Tuple([spaces.Discrete(3), spaces.Dict({"x": spaces.Text(3)})]),
        "some": spaces.Sequence(spaces.Box(-1, 1, (2,), np.float16)),
        "one": spaces.OneOf([spaces.Discrete(2), spaces.Text(4), spaces.Tuple([])]),
    }
)


def there_and_back(space, value, **options):
    return from_json(space, parse_json(json_bytes(to_json(space, value))), **options)


def test_values_of_spaces_come_back_with_the_same_bits():
    NESTED.seed(0)
    for _ in range(50):
        value = NESTED.sample()
        assert bits(there_and_back(NESTED, value, check_bounds=True)) == bits(value)


@given(st.data(), st.sampled_from([np.float16, np.float32, np.float64]))
def test_floats_come_back_with_the_same_bits(data, dtype):
    kind = f"u{np.dtype(dtype).itemsize}"
    array = data.draw(hnp.arrays(kind, hnp.array_shapes(min_dims=0))).view(dtype)
    space = spaces.Box(-INF, INF, array.shape, dtype)
    back = there_and_back(space, array)
    kept = np.where(np.isnan(array), dtype(math.nan), array)  # the bits of a NaN have no JSON
    assert bits(back) == bits(kept.astype(dtype))


@pytest.mark.parametrize("given_as", [np.float16, np.float32])
def test_a_signalling_nan_is_a_nan(given_as):
    bits_of = np.array([0x7C01 if given_as is np.float16 else 0x7F800001])
    array = bits_of.astype(f"u{np.dtype(given_as).itemsize}").view(given_as)
    for dtype in (np.float16, np.float32, np.float64):
        assert to_json(spaces.Box(-INF, INF, (1,), dtype), array) == ["NaN"]


@given(st.data(), st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]))
def test_ints_come_back(data, kind):
    array = data.draw(hnp.arrays(kind, hnp.array_shapes(min_dims=0, min_side=0)))
    info = np.iinfo(kind)
    space = spaces.Box(info.min, info.max, array.shape, array.dtype)
    assert bits(there_and_back(space, array)) == bits(array)


@given(hnp.arrays("u4", 20))
def test_floats_have_the_least_digits(array):
    array = array.view(np.float32)
    values = to_json(spaces.Box(-INF, INF, (20,), np.float32), array)
    for value, number in zip(values, array, strict=True):
        if np.isfinite(number):
            least = np.format_float_scientific(number, unique=True, trim="-")
            assert float(least) == value
            assert len(json.dumps(value)) <= 24


def test_what_json_looks_like():
    space = spaces.Dict({"b": spaces.Box(-INF, INF, (4,), np.float32), "a": spaces.Discrete(3)})
    value = {"b": np.array([0.1, math.nan, -INF, -0.0], np.float32), "a": np.int64(2)}
    assert json_bytes(to_json(space, value)) == b'{"a":2,"b":[0.1,"NaN","-Infinity",-0.0]}'
    assert to_json(spaces.Box(-INF, INF, (), np.float32), np.float32(INF)) == "Infinity"


def test_the_digits_of_numpys_print_options_do_not_matter():
    array = np.array([0.1, 1 / 3, 1e-20], np.float32)
    space = spaces.Box(-1, 1, (3,), np.float32)
    with np.printoptions(precision=2, legacy="1.13"):
        values = to_json(space, array)
    assert bits(from_json(space, values)) == bits(array)


def test_fields_of_buffers_are_values_of_spaces():
    space = spaces.Dict(
        {"x": spaces.Box(0, 9, (3,), np.float32), "t": spaces.Tuple([NESTED["flags"]])}
    )
    x, flags = Array((1, 1, 3), np.float32), Array((1, 1, 2, 2), np.int8)
    node = NamedArrayTuple(x=x, t=NamedArrayTuple(_0=flags))
    node[...] = 1
    assert to_json(space, node[0, 0]) == {"x": [1.0, 1.0, 1.0], "t": [[[1, 1], [1, 1]]]}
    keys = spaces.Dict(keys=spaces.Discrete(3))
    assert to_json(keys, NamedTuple(keys=np.int64(2))) == {"keys": 2}


def test_values_of_other_dtypes_are_cast():
    box = spaces.Box(-1, 1, (2,), np.float32)
    assert to_json(box, np.array([0.1, 1.0])) == [0.1, 1.0]
    assert to_json(box, [1, 0]) == [1.0, 0.0]
    assert to_json(spaces.Discrete(3), 2) == 2
    assert to_json(spaces.MultiBinary(2), [1, 0]) == [1, 0]
    assert to_json(spaces.Box(0, 255, (1,), np.uint8), np.array([255], np.int64)) == [255]


def changed(path, value):
    """Return the JSON of a sample, with another value at a path."""
    NESTED.seed(1)
    values = to_json(NESTED, NESTED.sample())
    values["some"] = [[0.0, 0.5]]
    at = values
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return values


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        (
            ["position", 1, 2],
            "x",
            r"^position\[1\]\[2\]: expected a number that fits in a float32, .*, got 'x'$",
        ),
        (["position", 0, 0], 1e39, r"^position\[0\]\[0\]: .*, got 1e\+39$"),
        (["position", 0, 0], 10**400, r"^position\[0\]\[0\]: .*, got an int of 1329 bits$"),
        (["position", 0, 0], math.nan, r"^position\[0\]\[0\]: .*, got nan$"),
        (["position", 0, 1], True, r"^position\[0\]\[1\]: .*, got true$"),
        (["position", 1], [1, 2], r"^position\[1\]: expected a list of 3, got a list of 2$"),
        (["position"], None, "^position: expected a list of 2, got null$"),
        (["position", 1, 1], [1.0], r"^position\[1\]\[1\]: expected a number .*, got a list of 1$"),
        (
            ["image", 1, 0, 2],
            256,
            r"^image\[1\]\[0\]\[2\]: expected an integer from 0 to 255, got 256$",
        ),
        (
            ["image", 1, 0, 2],
            1.0,
            r"^image\[1\]\[0\]\[2\]: expected an integer from 0 to 255, got 1.0$",
        ),
        (["door"], [0.5], r"^door: expected a number that fits in a float64, .*, got a list of 1$"),
        (
            ["action"],
            1 << 63,
            r"^action: expected an integer from -9223372036854775808 to .*, got 9",
        ),
        (["action"], False, "^action: expected an integer .*, got false$"),
        (["open", 2], 1, r"^open\[2\]: expected true or false, got 1$"),
        (["name"], 3, "^name: expected a string, got 3$"),
        (["pair", 1, "x"], None, r"^pair\[1\]\.x: expected a string, got null$"),
        (["pair"], [1, 2, 3], "^pair: expected a list of 2, got a list of 3$"),
        (["pair", 1], {"y": "a"}, r"^pair\[1\]: expected .* keys \['x'\], got .* keys \['y'\]$"),
        (["some", 0, 1], "a", r"^some\[0\]\[1\]: expected a number that fits in a float16"),
        (["some"], {}, r"^some: expected a list, got an object with the keys \[\]$"),
        (["one"], [3, 0], r"^one\[0\]: expected an integer from 0 to 2, got 3$"),
        (["one"], [True, 0], r"^one\[0\]: expected an integer from 0 to 2, got true$"),
        (["one"], [1, 0], r"^one\[1\]: expected a string, got 0$"),
        (["one"], 1, "^one: expected a list of 2, got 1$"),
    ],
)
def test_what_is_no_value_of_the_space_is_named(path, value, match):
    with pytest.raises(WireError, match=match):
        from_json(NESTED, changed(path, value))


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        (["door"], 3.5, "^door: expected from -3.0 to 3.0, got 3.5$"),
        (["door"], "NaN", "^door: expected from -3.0 to 3.0, got nan$"),
        (["action"], 3, "^action: expected from -2 to 2, got 3$"),
        (["actions", 1, 1], 5, r"^actions\[1\]\[1\]: expected from 0 to 4, got 5$"),
        (["flags", 0, 1], -1, r"^flags\[0\]\[1\]: expected from 0 to 1, got -1$"),
        (["name"], "123456789", "^name: expected 1 to 8 characters, got 9$"),
        (["name"], "a-é", r"^name: expected only characters in the space, got \['-', 'é'\]$"),
        (["pair", 1, "x"], "", r"^pair\[1\]\.x: expected 1 to 3 characters, got 0$"),
        (["some", 0, 0], 2, r"^some\[0\]\[0\]: expected from -1.0 to 1.0, got 2.0$"),
        (["one"], [0, 2], r"^one\[1\]: expected from 0 to 1, got 2$"),
    ],
)
def test_bounds_are_checked_on_request(path, value, match):
    values = changed(path, value)
    assert not NESTED.contains(from_json(NESTED, values))
    with pytest.raises(WireError, match=match):
        from_json(NESTED, values, check_bounds=True)


@pytest.mark.parametrize(
    ("space", "value", "match"),
    [
        (spaces.Box(0, 1, (2,), np.float32), np.zeros(3), r"expected shape \(2,\), got \(3,\)"),
        (spaces.Box(0, 1, (2, 2)), [[1.0], [1.0, 0.0]], r"shape \(2, 2\), got lists of different"),
        (spaces.Box(0, 1, (2,), np.float32), ["a", "b"], "expected float32, got <U1"),
        (
            spaces.Box(0, 1, (2,), np.float32),
            [0, 1e39],
            r"^\[1\]: expected a value of float32, got 1e",
        ),
        (
            spaces.Box(0, 9, (2,), np.uint8),
            [0, -1],
            r"^\[1\]: expected a value of uint8, got -1",
        ),
        (spaces.Discrete(3), 1.0, "expected int64, got float64"),
        (spaces.Text(3), b"a", "expected a string, got b'a'"),
        (spaces.Text(3), "\ud800", "got a lone surrogate in"),
        (spaces.Dict(a=spaces.Discrete(2)), {"b": 1}, r"keys \['a'\], got .* keys \['b'\]"),
        (spaces.Dict(a=spaces.Discrete(2)), [1], r"keys \['a'\], got a list of 1"),
        (
            spaces.Dict({3: spaces.Discrete(2)}),
            {3: 1},
            r"keys of type str, as JSON requires, .* \[3\]",
        ),
        (
            spaces.Sequence(spaces.Discrete(2), stack=True),
            [1],
            "^Sequence has no JSON form; expected a Box",
        ),
        (spaces.Graph(spaces.Discrete(2), None), None, "^Graph has no JSON"),
        (spaces.Tuple([spaces.Discrete(2), gym.Space()]), (1, 1), r"^\[1\]: Space has no JSON"),
    ],
)
def test_what_cannot_be_written_is_named(space, value, match):
    with pytest.raises(WireError, match=match):
        to_json(space, value)


def test_other_spaces_are_refused_in_both_directions():
    with pytest.raises(WireError, match=r"^Graph has no JSON"):
        from_json(spaces.Graph(spaces.Discrete(2), None), {})
