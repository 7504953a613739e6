"""Records, by reading back what was written."""

from __future__ import annotations

import enum
import itertools
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.logging import RecordFile, read_records

FORK = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FORKED = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deeper" / "records.jsonl"


def write(path, *values, **options):
    with RecordFile(path, **options) as records:
        return [records.append("any", {"value": value}) for value in values]


def values_in(path):
    return [record["value"] for record in read_records(path)]


def numbers_in(path, **options):
    return [record["seq"] for record in read_records(path, **options)]


# ---------------------------------------------------------------------- what a record holds


def test_records_have_a_kind_a_number_and_a_version(path):
    with RecordFile(path, version=3) as records:
        assert records.append("step", {"reward": 0.5, "info": {"won": True}}) == 1
        assert records.append("episode", {}) == 2
    assert path.read_text() == (
        '{"kind": "step", "seq": 1, "version": 3, "reward": 0.5, "info": {"won": true}}\n'
        '{"kind": "episode", "seq": 2, "version": 3}\n'
    )
    assert list(read_records(path, "episode")) == [{"kind": "episode", "seq": 2, "version": 3}]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text() | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def spelled(value):
    """Return a value as it is read back."""
    if isinstance(value, dict):
        return {key: spelled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [spelled(item) for item in value]
    if isinstance(value, float) and value in (float("inf"), -float("inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return "NaN" if value != value else value


@settings(max_examples=200)
@given(values=st.lists(JSON_VALUES, max_size=3))
def test_values_of_json_are_read_back(values):
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "records.jsonl"
        write(file, *values)
        found = values_in(file)
    assert found == [spelled(value) for value in values]
    assert repr(found) == repr([spelled(value) for value in values])  # -0.0, and True beside 1


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.float16("nan"), "NaN"),
        (np.longdouble("-inf"), "-Infinity"),
        (np.int8(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.array(2.5), 2.5),
        (np.arange(6, dtype=np.uint8).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
        (np.array([1.0, np.nan, np.inf]), [1.0, "NaN", "Infinity"]),
        (np.array([1, 2], np.longdouble), [1.0, 2.0]),
        (np.array([True, False]), [True, False]),
        (np.array(["a", "bc"]), ["a", "bc"]),
        (np.zeros((0, 3)), []),
        (np.zeros(4096, np.int8), [0] * 4096),
        ((1, (2, 3)), [1, [2, 3]]),
        ("größe\n\u2028 \0", "größe\n\u2028 \0"),
        (Colour.RED, 1),
    ],
)
def test_numbers_and_arrays_of_numpy_are_written_as_numbers_and_lists(path, value, expected):
    write(path, value)
    (found,) = values_in(path)
    assert found == expected
    assert type(found) is type(expected)
    assert path.read_bytes().count(b"\n") == 1


ITSELF: list = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": {"b": [1, {"c": b"raw"}]}}, r"a\.b\[1\]\.c: expected .*, got bytes b'raw'"),
        ({"a": [[1], [2, {3}]]}, r"a\[1\]\[1\]: expected .*, got set \{3\}"),
        ({"when": datetime(2020, 1, 1)}, r"when: expected .*, got datetime"),
        ({"where": Path("x")}, r"where: expected .*, got PosixPath"),
        ({"a": {1: 2}}, r"a: expected strings as keys, got 1"),
        ({1: 2}, r"the values: expected strings as keys, got 1"),
        ({"z": 1j}, r"z: expected .*, got complex"),
        (
            {"z": np.array([1j])},
            r"z: expected an array of numbers or strings, got dtype complex128",
        ),
        ({"o": np.array([None])}, r"o: expected an array .*, got dtype object"),
        (
            {"frame": np.zeros((64, 65))},
            r"frame: expected .* at most 4,096 .*, got shape \(64, 65\)",
        ),
        ({"a": 10**5000}, r"Exceeds the limit \(4300"),
        ({"a": ITSELF}, r"expected values without deep nesting"),
    ],
)
def test_other_values_are_refused_with_their_path(path, values, message):
    with RecordFile(path) as records:
        with pytest.raises(TypeError, match=f"^RecordFile: {message}"):
            records.append("any", values)
        assert path.read_bytes() == b""
        assert records.append("any", {}) == 1  # no number was used up


def test_arguments_are_checked(path):
    for version in (0, -1):
        with pytest.raises(
            ValueError, match=f"version: expected an int of at least 1, got {version}"
        ):
            RecordFile(path, version=version)
    with RecordFile(path) as records:
        with pytest.raises(TypeError, match="kind: expected a string, got 3"):
            records.append(3, {})
        with pytest.raises(TypeError, match="values: expected a mapping, got 3"):
            records.append("any", 3)
        for key in ("kind", "seq", "version"):
            with pytest.raises(ValueError, match=f"'{key}': expected a different name"):
                records.append("any", {key: 1})


# ---------------------------------------------------------------------- numbers


def test_a_second_writer_goes_on_where_the_first_ended(path):
    assert write(path, "a", "b") == [1, 2]
    assert write(path) == []
    assert write(path, "c" * 10_000, version=2) == [3]
    assert write(path, "d") == [4]
    assert [record["version"] for record in read_records(path)] == [1, 1, 2, 1]
    assert [value[0] for value in values_in(path)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("rest", [b"{", b'{"kind": "any", "seq": 3', b"\0" * 5000, b"x" * 10_000])
def test_half_a_record_is_left_out_and_then_dropped(path, rest):
    write(path, "a", "b")
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    warnings = []
    assert numbers_in(path, warn=warnings.append) == [1, 2]
    (warning,) = warnings
    assert warning == f"{path}: line 3 is not whole: {len(rest):,} bytes are left out"
    assert write(path, "c") == [3]
    assert path.read_bytes()[: len(whole)] == whole
    assert values_in(path) == ["a", "b", "c"]
    assert numbers_in(path, warn=pytest.fail) == [1, 2, 3]


@pytest.mark.parametrize("n_bytes", [0, 1, 9, 30])
def test_half_of_the_first_record_is_dropped(path, n_bytes):
    write(path, "a")
    path.write_bytes(path.read_bytes()[:n_bytes])
    assert write(path, "b") == [1]
    assert values_in(path) == ["b"]


@pytest.mark.parametrize(
    "content", [b'{"gamma": 0.99}', b"a note", b"a note\nand half", b"\0" * 50]
)
def test_a_file_of_something_else_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"expected a record, .*; move the file away to start"):
        RecordFile(path)
    assert path.read_bytes() == content


def test_half_a_record_is_not_completed_by_the_next(path):
    write(path, "a")
    whole = path.read_bytes()
    path.write_bytes(whole + whole.replace(b"1", b"2")[:-2])
    reader = read_records(path)
    assert next(reader)["value"] == "a"
    write(path, "b" * 100)
    assert list(reader) == []
    assert values_in(path) == ["a", "b" * 100]


@pytest.mark.parametrize("size", [2**16 - 60, 2**16, 2**17, 10**6])
def test_records_may_be_long(path, size):
    values = ["x" * (size + i) for i in range(-3, 4)]
    write(path, *values)
    assert values_in(path) == values
    path.write_bytes(path.read_bytes()[:-1])
    assert values_in(path) == values[:-1]
    assert write(path, "end") == [7]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"",
        b"[1]",
        b"\xff",
        b'{"kind": "a", "seq": 2}',
        b'{"seq": 2, "version": 1}',
        b'{"kind": "a", "seq": "2", "version": 1}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_line_is_an_error_that_names_it(path, line):
    write(path, "a")
    path.write_bytes(path.read_bytes() + line + b"\n")
    reader = read_records(path)
    assert next(reader)["value"] == "a"
    with pytest.raises(ValueError, match=r"records\.jsonl: line 2: expected a record, .*, got b'"):
        next(reader)
    with pytest.raises(
        ValueError, match=r"RecordFile: .*records\.jsonl: last line: expected a rec"
    ):
        RecordFile(path)


def test_a_number_that_comes_again_is_an_error(path):
    write(path, "a", "b")
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(
        ValueError, match=r"line 3: expected a seq above 2, .*, got 1; two processes"
    ):
        list(read_records(path))


def test_a_missing_file_is_an_error(path):
    with pytest.raises(FileNotFoundError):
        list(read_records(path))


def test_a_growing_file_is_followed(path):
    seen = 0
    with RecordFile(path) as records:
        for n_more in (0, 3, 0, 1, 2):
            expected = [records.append("any", {"value": 0}) for _ in range(n_more)]
            found = numbers_in(path, after=seen)
            assert found == expected
            seen = max(found, default=seen)
        records.append("other", {})
        assert numbers_in(path, kind="other", after=seen) == [7]
        assert numbers_in(path, kind="any", after=5) == [6]


def test_threads_share_a_file(path):
    begin = threading.Barrier(4)

    def run(name):
        begin.wait(30)
        returned[name] = [records.append(name, {"number": i, "x": "y" * i}) for i in range(300)]

    returned: dict[str, list[int]] = {}
    with RecordFile(path) as records:
        threads = [threading.Thread(target=run, args=(name,)) for name in "abcd"]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        sys.setswitchinterval(interval)
    assert numbers_in(path) == list(range(1, 1201))
    for name in "abcd":
        found = list(read_records(path, name))
        assert [record["seq"] for record in found] == returned[name]
        assert [record["number"] for record in found] == list(range(300))


# ---------------------------------------------------------------------- kills


def write_until_killed(path, seed):
    generator = random.Random(seed)
    with RecordFile(path) as records:
        while True:
            records.append("any", {"value": "x" * int(10 ** generator.uniform(0, 6))})


@FORK
@pytest.mark.parametrize("n_files", [1, pytest.param(10, marks=pytest.mark.soak)])
def test_whole_records_stay_when_the_writer_is_killed(path, n_files):
    generator = random.Random(n_files)
    for _ in range(n_files):
        path.unlink(missing_ok=True)  # or reading would take longer and longer
        write(path, "begin")
        last = 1
        for _ in range(10):
            size = path.stat().st_size
            child = FORKED.Process(target=write_until_killed, args=(path, generator.random()))
            child.start()
            deadline = time.monotonic() + 30
            while path.stat().st_size == size:
                assert time.monotonic() < deadline
                time.sleep(0.0005)
            time.sleep(generator.uniform(0, 0.01))
            child.kill()
            child.join(30)
            child.close()
            numbers = numbers_in(path)
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) >= last
            assert write(path, "after the kill") == [len(numbers) + 1]
            last = len(numbers) + 1
            assert numbers_in(path, warn=pytest.fail)[-1] == last
        assert values_in(path).count("after the kill") == 10


# ---------------------------------------------------------------------- trouble


def append_under_a_limit(path, limit, results):
    records = RecordFile(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    errors = 0
    for _ in range(40):
        before = path.read_bytes()
        try:
            records.append("any", {"value": "x" * 500})
        except OSError:
            assert path.read_bytes() == before  # not even a part
            errors += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    results.send((errors, records.append("any", {"value": "room again"})))


@FORK
def test_a_record_that_finds_no_room_is_missing_and_nothing_else(path):
    ours, theirs = FORKED.Pipe(duplex=False)
    child = FORKED.Process(target=append_under_a_limit, args=(path, 10_000, theirs))
    child.start()
    theirs.close()
    with ours:
        errors, last = ours.recv()
    child.join(30)
    child.close()
    assert 10 < errors < 40
    n_before = 40 - errors
    # The gap says how many are missing.
    assert numbers_in(path, warn=pytest.fail) == [*range(1, n_before + 1), 41]
    assert last == 41
    assert values_in(path)[-1] == "room again"


class Failing:
    """A file whose writes fail after some bytes, and which may refuse to be cut."""

    def __init__(self, file, *, may_cut):
        self.file, self.may_cut = file, may_cut

    def write(self, content):
        self.file.write(bytes(content)[:10])
        raise OSError(5, "Input/output error")

    def truncate(self, size):
        if not self.may_cut:
            raise OSError(5, "Input/output error")
        return self.file.truncate(size)

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("may_cut", [True, False])
def test_half_a_record_of_a_failed_write_goes_before_the_next(path, may_cut):
    with RecordFile(path) as records:
        records.append("any", {"value": "a"})
        whole, good = path.read_bytes(), records._file
        records._file = Failing(good, may_cut=may_cut)
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output error"):
                records.append("any", {"value": "b"})
        assert (path.read_bytes() == whole) == may_cut
        records._file = good
        records.append("any", {"value": "c"})
    assert values_in(path) == ["a", "c"]
    assert numbers_in(path) == [1, 4]


def test_a_removed_folder_is_one_clear_error(path):
    with RecordFile(path) as records:
        records.append("any", {"value": 1})
        shutil.rmtree(path.parent)
        for _ in range(2):
            with pytest.raises(
                FileNotFoundError, match=r"removed while it was open.*records\.jsonl"
            ):
                records.append("any", {"value": 2})
        assert not path.parent.exists()
    assert write(path, 3) == [1]


def test_a_folder_that_cannot_be_written_is_an_error_at_the_start(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"RecordFile: expected a writable folder: .*file"):
        RecordFile(tmp_path / "file" / "records.jsonl")
    with pytest.raises(OSError, match=r"RecordFile: expected a writable folder: Is a di"):
        RecordFile(tmp_path)


def test_a_second_writer_at_a_time_is_noticed(path):
    with RecordFile(path) as first:
        first.append("any", {"value": 1})
        write(path, 2)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="another process has written to the file"):
                first.append("any", {"value": 3})
    assert values_in(path) == [1, 2]


@FORK
def test_a_forked_child_cannot_write(path):
    def append_here():
        with pytest.raises(RuntimeError, match=rf"opened by process {parent}, used by \d+; give"):
            records.append("any", {})
        records.close()

    parent = os.getpid()
    with RecordFile(path) as records:
        child = FORKED.Process(target=append_here)
        child.start()
        child.join(30)
        assert child.exitcode == 0
        child.close()
        assert records.append("any", {}) == 1


def test_closing_twice_is_fine_and_writing_after_it_is_not(path):
    records = RecordFile(path)
    records.append("any", {})
    records.sync()
    records.close()
    records.close()
    for use in (lambda: records.append("any", {}), records.sync):
        with pytest.raises(RuntimeError, match=r"records\.jsonl: used after close\(\)"):
            use()


def test_records_are_there_before_append_returns(path):
    with RecordFile(path) as records:
        for number in itertools.islice(itertools.count(1), 5):
            records.append("any", {})
            assert json.loads(path.read_bytes().splitlines()[-1])["seq"] == number
