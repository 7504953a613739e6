from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from parllel.runs import load_state, save_state

MARKERS = ["array:0", "array:", "text:x", "text:", "0", "array:99", "text:array:0"]
MARKERS += ["int:3", "int:x", "tuple:", "tensor:", "text:int:3"]
TEXTS = st.text(max_size=8) | st.sampled_from(MARKERS)
DTYPES = ["f2", "f4", "f8", ">f8", "i1", "i8", ">i4", "u1", ">u2", "?", "c8", "U3", ">U2", "S2"]
ORDERS = [
    lambda array: array,
    np.asfortranarray,
    lambda array: array[..., ::2] if array.ndim else array,
    lambda array: array.T,
    lambda array: np.broadcast_to(array, (2, *array.shape)),
]
ARRAYS = st.builds(
    lambda array, order: order(array),
    hnp.arrays(
        st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    ),
    st.sampled_from(ORDERS),
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**64, 2**130)  # the state of a bit generator
    | st.floats()
    | TEXTS
    | ARRAYS
)
STATES = st.dictionaries(
    TEXTS,
    st.recursive(
        LEAVES,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(TEXTS | st.integers(), inner, max_size=3)
        ),
        max_leaves=12,
    ),
    max_size=4,
)


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype.str == expected.dtype.str
        assert found.shape == expected.shape
        assert found.flags.writeable
        assert found.flags.owndata
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert_same(found[name], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    else:
        assert repr(found) == repr(expected)  # which tells 0.0 from -0.0, and knows NaN


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("states")


@settings(max_examples=100)
@given(state=STATES)
def test_what_is_loaded_is_what_was_saved(scratch, state):
    save_state(scratch / "state.zip", state)
    assert_same(load_state(scratch / "state.zip"), state)


def test_scalars_and_tuples_of_numpy_and_python(tmp_path):
    save_state(tmp_path / "s", {"scalar": np.float32(1.5), "tuple": (1, "two", np.int8(3))})
    state = load_state(tmp_path / "s")
    assert_same(state["scalar"], np.array(1.5, np.float32))
    assert_same(state["tuple"], (1, "two", np.array(3, np.int8)))


@pytest.mark.parametrize("name", ["PCG64", "MT19937", "Philox", "SFC64"])
def test_generators_continue(tmp_path, name):
    generator = np.random.Generator(getattr(np.random, name)(3))
    generator.random(7)
    save_state(tmp_path / "s", {"generator": generator.bit_generator.state})
    other = np.random.Generator(getattr(np.random, name)(4))
    other.bit_generator.state = load_state(tmp_path / "s")["generator"]
    assert other.random(5).tolist() == generator.random(5).tolist()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"a": {"b": object()}},
            r"state\.a\.b: expected numbers, strings, None, arrays.*, got object",
        ),
        ({"a": [1, {2}]}, r"state\.a\[1\]: expected numbers, strings, None, arrays.*, got set"),
        ({"a": np.array([None])}, r"state\.a: expected arrays of numbers.*got dtype object"),
        ({"a": np.zeros(1, [("x", int)])}, r"state\.a: expected arrays of numbers.*\('x', '<i8'\)"),
        (
            {"a": np.zeros(1, "M8[s]")},
            r"state\.a: expected arrays of numbers.*got dtype datetime64",
        ),
        ({"a": {1.5: 2}}, r"state\.a: keys must be strings or ints, got 1\.5"),
        ({"a": {True: 2}}, r"state\.a: keys must be strings or ints, got True"),
        ({"a": {0: {"b": {1}}}}, r"state\.a\[0\]\.b: expected numbers.*, got set"),
        ({"a": b"bytes"}, r"state\.a: expected numbers, strings, None, arrays.*, got bytes"),
    ],
)
def test_what_cannot_be_saved_is_named(tmp_path, state, message):
    path = tmp_path / "state.zip"
    save_state(path, {"old": 1})
    with pytest.raises(TypeError, match=message):
        save_state(path, state)
    assert load_state(path) == {"old": 1}
    assert os.listdir(tmp_path) == ["state.zip"]


STATE = {"text": "text:array:0", "array": np.arange(3), "empty": np.zeros(0), "list": [1.5, None]}


def test_every_truncated_file_is_refused(tmp_path):
    path = tmp_path / "state.zip"
    save_state(path, STATE)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"state\.zip: not a saved state, or damaged"):
            load_state(path)


def test_a_flipped_bit_is_refused_or_does_no_harm(tmp_path):
    path = tmp_path / "state.zip"
    save_state(path, STATE)
    content = path.read_bytes()
    refused = 0
    for position in range(len(content)):
        for bit in (0, 1 + position % 7):  # the first of a byte is where zip has its flags
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            with contextlib.suppress(ValueError):  # and nothing else
                assert_same(load_state(path), STATE)  # it was a date, say
                continue
            refused += 1
    assert refused > len(content)


def write_zip(path, structure, elements=b"", compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("structure.json", structure)
        archive.writestr("arrays.bin", elements)


def entries(*arrays, state=None):
    return json.dumps({"arrays": arrays, "state": state or {"a": "array:0"}})


BYTES = bytes(range(64))


def test_a_file_made_by_hand(tmp_path):
    path = tmp_path / "state.zip"
    write_zip(path, entries(["|u1", [2], 0], [">u2", [], 16], state={"b": "array:1"}), BYTES[:18])
    assert_same(load_state(path), {"b": np.array(0x1011, ">u2")})


@pytest.mark.parametrize(
    "array",
    [
        ["|O", [8], 0],
        ["|V8", [8], 0],
        ["<M8[s]", [8], 0],
        ["<f4,<i4", [8], 0],
        ["float64", [8], 0],
        ["f8", [8], 0],
        [">u1", [64], 0],
        ["<f3", [8], 0],
        ["<U0", [8], 0],
        ["<U999999999999", [0], 0],
        [None, [8], 0],
        [["<f8"], [8], 0],
        ["<f8", [7], 0],
        ["<f8", [9], 0],
        ["<f8", [1, -1, -8], 0],
        ["<f8", [8.0], 0],
        ["<f8", [True, 8], 0],
        ["<f8", [10**30], 0],
        ["<f8", [10**9, 10**9, 10**9], 0],
        ["<f8", [8, 10**30, 0], 0],
        ["<f8", [1] * 100 + [8], 0],
        ["<f8", 8, 0],
        ["<f8", "8", 0],
        ["<f8", None, 0],
        ["<f8", [6], 16],
        ["<f8", [8], -16],
        ["<f8", [8], 0.0],
        ["<f8", [8], False],
        ["<f8", [8], 10**40],
        ["<f8", [8], None],
        ["<f8", [8]],
        ["<f8", [8], 0, 0],
        None,
        "<f8",
    ],
)
def test_arrays_that_make_no_sense_are_refused(tmp_path, array):
    path = tmp_path / "state.zip"
    write_zip(path, entries(["<f8", [8], 0]), BYTES)
    assert load_state(path)["a"].shape == (8,)
    write_zip(path, entries(array), BYTES)
    with pytest.raises(ValueError, match=r"state\.zip: not a saved state, or damaged"):
        load_state(path)


def test_members_that_would_grow_are_refused(tmp_path):
    path = tmp_path / "state.zip"
    structure = entries(["|u1", [10**7], 0])
    write_zip(path, structure, bytes(10**7), zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 10**5
    with pytest.raises(ValueError, match=r"structure\.json has sizes \(\d+, \d+\) in a file of"):
        load_state(path)


def test_sizes_beyond_the_file_are_refused_before_memory_is_asked_for(tmp_path):
    path = tmp_path / "state.zip"
    claimed = 3 * 10**9
    write_zip(path, entries(["|u1", [claimed], 0]), BYTES)
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")  # of arrays.bin in the directory; sizes stand at byte 20
    content[entry + 20 : entry + 28] = 2 * claimed.to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=rf"arrays\.bin has sizes \({claimed}, {claimed}\) in a file"
    ):
        load_state(path)


@pytest.mark.parametrize("text", ["array:", "array:1", "array:-1", "array:1e0", "array:x", "a"])
def test_names_of_no_array_are_refused(tmp_path, text):
    path = tmp_path / "state.zip"
    write_zip(path, entries(["<f8", [8], 0], state={"a": {"b": [text]}}), BYTES)
    with pytest.raises(ValueError, match="expected a text or one of 1 arrays, got"):
        load_state(path)


@pytest.mark.parametrize(
    "structure",
    [
        "{",
        "[]",
        "1",
        "null",
        '{"a": "array:0"}',
        '{"arrays": [], "state": []}',
        '{"arrays": [], "state": null}',
        '{"arrays": {}, "state": {}, "more": {}}',
        '{"arrays": null, "state": {}}',
        '{"arrays": [], "state": ' + '{"a": ' * 10_000 + "1" + "}" * 10_000 + "}",
    ],
)
def test_other_structures_are_refused(tmp_path, structure):
    path = tmp_path / "state.zip"
    write_zip(path, structure)
    with pytest.raises(ValueError, match=r"state\.zip: not a saved state, or damaged"):
        load_state(path)


@settings(max_examples=200)
@given(state=STATES, data=st.data())
def test_damage_of_any_kind_is_refused_or_does_no_harm(scratch, state, data):
    path = scratch / "damaged.zip"
    save_state(path, state)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans(), "cut"):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(ValueError):  # and nothing else
        assert_same(load_state(path), state)


def test_many_and_large_arrays(tmp_path):
    path = tmp_path / "state.zip"
    generator = np.random.default_rng(0)
    state = {
        "small": [np.full(i % 5, i, np.int16) for i in range(3000)],
        "large": generator.random((3, 100_003)),
        "turned": np.asfortranarray(generator.integers(0, 255, (1000, 1001)).astype(">u4")),
        "last": np.array(True),
    }
    save_state(path, state)
    assert_same(load_state(path), state)
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["structure.json", "arrays.bin"]
    assert all(array.flags.aligned for array in load_state(path)["small"])


def test_equal_states_make_equal_files(tmp_path):
    for name in ("a", "b"):
        save_state(tmp_path / name, {"x": np.arange(5), "y": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_too_little_memory_is_not_taken_for_damage(tmp_path, monkeypatch):
    def fail(*arguments):
        raise MemoryError("Unable to allocate 9 TiB")

    path = tmp_path / "state.zip"
    save_state(path, STATE)
    monkeypatch.setattr(np, "empty", fail)
    with pytest.raises(MemoryError, match="9 TiB"):
        load_state(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "state.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("something.txt", "else")
    with pytest.raises(ValueError, match=r"state\.zip: not a saved state, or damaged"):
        load_state(path)
    path.write_text(json.dumps({"a": 1}))
    with pytest.raises(ValueError, match=r"state\.zip: not a saved state, or damaged"):
        load_state(path)
    with pytest.raises(FileNotFoundError, match=r"missing\.zip"):
        load_state(tmp_path / "missing.zip")


@pytest.mark.parametrize("failing", ["json.dumps", "os.fsync", "os.replace"])
def test_an_error_while_writing_leaves_the_old_file(tmp_path, monkeypatch, failing):
    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    path = tmp_path / "state.zip"
    save_state(path, {"old": np.arange(3)})
    with monkeypatch.context() as patch:
        patch.setattr(failing, fail)
        with pytest.raises(OSError, match="No space left"):
            save_state(path, {"new": np.arange(4)})
    assert_same(load_state(path), {"old": np.arange(3)})
    assert os.listdir(tmp_path) == ["state.zip"]


KILLED = """
import os, signal, sys
import numpy as np
from parllel.runs import save_state

def kill(*args):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(os, sys.argv[2], kill)
save_state(sys.argv[1], {"new": np.zeros(100_000)})
"""


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_kill_while_writing_leaves_the_old_file(tmp_path, moment):
    path = tmp_path / "state.zip"
    save_state(path, {"old": 1})
    command = [sys.executable, "-c", KILLED, str(path), moment]
    done = subprocess.run(command, check=False)
    assert done.returncode == -signal.SIGKILL
    assert load_state(path) == {"old": 1}
    save_state(path, {"new": 2})  # what the killed one left is in nobody's way
    assert load_state(path) == {"new": 2}


def test_a_folder_that_cannot_be_written(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        save_state(tmp_path / "missing" / "state.zip", {})
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file"):
        save_state(tmp_path / "file" / "state.zip", {})
    with pytest.raises(OSError, match="/proc"):  # even of a superuser
        save_state("/proc/state.zip", {})


def test_the_file_is_as_readable_as_any_other(tmp_path):
    save_state(tmp_path / "state.zip", {})
    (tmp_path / "other").touch()
    assert (tmp_path / "state.zip").stat().st_mode == (tmp_path / "other").stat().st_mode
