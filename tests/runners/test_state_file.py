from __future__ import annotations

import contextlib
import io
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

from parllel.runners import load_state, save_state

MARKERS = ["array:a0", "array:", "text:x", "text:", "a0", "array:a99", "text:array:a0"]
TEXTS = st.text(max_size=8) | st.sampled_from(MARKERS)
ARRAYS = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.uint8, bool, ">i4", "U3"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
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
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=12,
    ),
    max_size=4,
)


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert_same(found[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    else:
        assert repr(found) == repr(expected)  # which tells 0.0 from -0.0, and knows NaN


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("states")


@settings(max_examples=100, deadline=None)
@given(state=STATES)
def test_what_is_loaded_is_what_was_saved(scratch, state):
    save_state(scratch / "state.zip", state)
    assert_same(load_state(scratch / "state.zip"), state)


def test_scalars_and_tuples_of_numpy_and_python(tmp_path):
    save_state(tmp_path / "s", {"scalar": np.float32(1.5), "tuple": (1, "two", np.int8(3))})
    state = load_state(tmp_path / "s")
    assert_same(state["scalar"], np.array(1.5, np.float32))
    assert_same(state["tuple"], [1, "two", np.array(3, np.int8)])


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
        ({"a": {"b": object()}}, r"state\.a\.b: expected arrays and JSON values, got object"),
        ({"a": [1, {2}]}, r"state\.a\[1\]: expected arrays and JSON values, got set"),
        ({"a": np.array([None])}, r"state\.a: arrays of objects cannot be saved"),
        ({"a": {1: 2}}, r"state\.a: keys must be strings, got \[1\]"),
        ({"a": b"bytes"}, r"state\.a: expected arrays and JSON values, got bytes"),
    ],
)
def test_what_cannot_be_saved_is_named(tmp_path, state, message):
    path = tmp_path / "state.zip"
    save_state(path, {"old": 1})
    with pytest.raises(TypeError, match=message):
        save_state(path, state)
    assert load_state(path) == {"old": 1}
    assert os.listdir(tmp_path) == ["state.zip"]


STATE = {"text": "text:array:a0", "array": np.arange(3), "list": [1.5, None]}


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


def write_zip(path, **files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)


def pickled(array):
    content = io.BytesIO()
    np.save(content, array, allow_pickle=True)
    return content.getvalue()


class Harm:
    done = False

    def __reduce__(self):
        return setattr, (Harm, "done", True)


@pytest.mark.parametrize("structure", ['{"a": "array:a0"}', '{"a": 1}'])
def test_pickled_objects_are_refused(tmp_path, structure):
    path = tmp_path / "state.zip"
    write_zip(path, structure__json=structure, a0__npy=pickled(np.array([Harm()], object)))
    with pytest.raises(ValueError, match=r"state\.zip: not a saved state.*allow_pickle=False"):
        load_state(path)
    assert not Harm.done


@pytest.mark.parametrize(
    "structure", ["{", '{"a": "array:a0"}', '{"a": "unmarked"}', "[]", "1", "null", '"text:x"']
)
def test_other_structures_are_refused(tmp_path, structure):
    path = tmp_path / "state.zip"
    write_zip(path, structure__json=structure)
    with pytest.raises(ValueError, match=r"state\.zip: not a saved state, or damaged"):
        load_state(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "state.zip"
    write_zip(path, something__txt="else")
    with pytest.raises(ValueError, match=r"state\.zip: not a saved state, or damaged"):
        load_state(path)
    path.write_text(json.dumps({"a": 1}))
    with pytest.raises(ValueError, match=r"state\.zip: not a saved state, or damaged"):
        load_state(path)
    with pytest.raises(FileNotFoundError, match=r"missing\.zip"):
        load_state(tmp_path / "missing.zip")


@pytest.mark.parametrize("failing", ["numpy.save", "os.fsync", "os.replace"])
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
from parllel.runners import save_state

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
