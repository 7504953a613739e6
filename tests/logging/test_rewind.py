"""Going back to a checkpoint: what was written after it goes, and the run writes it once more."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.logging import CsvWriter, JsonlWriter, Logger, TensorBoardWriter, TextWriter

KEYS = ["a", "b", "loss/mean", 'odd, "key"', "two\nlines", "with\rreturn", "größe", "step/2"]
VALUES = st.integers(-5, 10**6) | st.floats(width=16)
RUNS = st.lists(
    st.tuples(
        st.integers(1, 1000), st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=4)
    ),
    min_size=1,
    max_size=8,
)


def write_rows(writer, rows):
    for step, values in rows:
        writer.write(step, values)


@settings(max_examples=150)
@given(run=RUNS, data=st.data())
@pytest.mark.parametrize("kind", [CsvWriter, JsonlWriter])
@pytest.mark.few(1)
def test_a_run_that_was_killed_and_resumed_leaves_the_file_of_one_that_was_not(kind, run, data):
    rows, step = [], 0
    for more, values in run:
        step += more
        rows.append((step, values))
    n_written = data.draw(st.integers(0, len(rows)), "rows before the kill")
    n_kept = data.draw(st.integers(0, n_written), "rows before the checkpoint")
    checkpoint = rows[n_kept - 1][0] if n_kept else 0
    if n_kept < len(rows):  # a checkpoint lies anywhere before the next row
        checkpoint += data.draw(st.integers(0, rows[n_kept][0] - checkpoint - 1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        through, killed = kind(folder / "through"), kind(folder / "killed")
        write_rows(through, rows)
        write_rows(killed, rows[:n_written])
        if n_written < len(rows) and data.draw(st.booleans(), "killed while it wrote a row"):
            killed.write(*rows[n_written])
            content = killed.path.read_bytes()
            last = content[:-1].rpartition(b"\n")[2] if n_written else content[:-1]
            cut = data.draw(st.integers(1, len(last) + 1), "bytes that were not written")
            killed.path.write_bytes(content[:-cut])
        resumed = kind(folder / "killed")
        resumed.rewind(checkpoint)
        write_rows(resumed, rows[n_kept:])
        assert resumed.path.read_bytes() == through.path.read_bytes()
        assert [path.name for path in resumed.path.parent.iterdir()] == [resumed.path.name]


def test_csv_columns_that_only_later_rows_had_go_with_them(tmp_path):
    writer = CsvWriter(tmp_path)
    write_rows(writer, [(1, {"a": 1}), (2, {"b": 2, "a": 3}), (3, {"c": 4, "a": 5})])
    writer.rewind(2)
    assert writer.path.read_text() == "step,a,b\n1,1,\n2,3,2\n"
    writer.rewind(1)
    assert writer.path.read_text() == "step,a\n1,1\n"
    writer.rewind(0)
    assert writer.path.read_bytes() == b""
    writer.write(1, {"d": 6})
    assert writer.path.read_text() == "step,d\n1,6\n"


def test_json_messages_go_with_the_row_in_front_of_them(tmp_path):
    writer = JsonlWriter(tmp_path)
    writer.message("notice", "begin")
    writer.write(10, {"a": 1})
    writer.message("notice", "after 10")
    writer.write(20, {"a": float("nan")})
    writer.message("warning", "after 20")
    with writer.path.open("a") as file:
        file.write('{"step": 3')
    writer.rewind(10)
    lines = [json.loads(line) for line in writer.path.read_text().splitlines()]
    assert lines == [{"notice": "begin"}, {"step": 10, "a": 1}, {"notice": "after 10"}]
    writer.rewind(0)
    assert writer.path.read_text() == '{"notice": "begin"}\n'


def test_json_lines_of_others_stay(tmp_path):
    path = tmp_path / "progress.jsonl"
    path.write_text('not json\n[1]\n{"step": "late"}\n{"step": 5}\n')
    JsonlWriter(tmp_path).rewind(4)
    assert path.read_text() == 'not json\n[1]\n{"step": "late"}\n'


def test_text_keeps_everything_and_says_so(tmp_path):
    writer = TextWriter(tmp_path)
    writer.write(5, {"a": 1})
    before = writer.path.read_text()
    writer.rewind(3)
    text = writer.path.read_text()
    assert text.startswith(before)
    line = r"[\d: +-]+ rewound to step 3: rows of later steps above this line do not count\n"
    assert re.fullmatch(line, text[len(before) :])


def test_text_drops_half_a_line_that_a_kill_left(tmp_path):
    writer = TextWriter(tmp_path)
    writer.message("notice", "one")
    before = writer.path.read_text()
    writer.path.write_text(before + "2026-01-01 00:00:00+00:00 not")
    writer.message("notice", "two")
    lines = writer.path.read_text().splitlines()
    assert lines[0] + "\n" == before
    assert len(lines) == 2
    assert lines[1].endswith("notice: two")


def scalars_of(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    return {tag: [event.step for event in accumulator.Scalars(tag)] for tag in tags}


def tensors_of(folder):
    """Read as the web page of TensorBoard does."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    tags = accumulator.Tags()["tensors"]
    return {tag: [event.step for event in accumulator.Tensors(tag)] for tag in tags}


@pytest.mark.parametrize("read", [scalars_of, tensors_of])
@pytest.mark.parametrize("anew", [False, True])
def test_tensorboard_forgets_later_steps(tmp_path, read, anew):
    writer = TensorBoardWriter(tmp_path)
    write_rows(writer, [(step, {"a": step}) for step in (10, 20, 30, 40)])
    if anew:
        with writer.path.open("ab") as file:
            file.write(b"half a record")
        writer = TensorBoardWriter(tmp_path)
    writer.rewind(20)
    assert read(tmp_path)["a"] == [10, 20]
    write_rows(writer, [(step, {"a": step}) for step in (30, 40, 50)])
    assert read(tmp_path)["a"] == [10, 20, 30, 40, 50]
    if anew:
        writer = TensorBoardWriter(tmp_path)
    writer.rewind(40)
    writer.write(50, {"a": 1})
    assert read(tmp_path)["a"] == [10, 20, 30, 40, 50]


def test_a_logger_rewinds_its_writers(tmp_path):
    writers = [kind(tmp_path) for kind in (CsvWriter, JsonlWriter, TextWriter, TensorBoardWriter)]
    with Logger(writers) as logger:
        for step in (10, 20):
            logger.log_value("a", step)
            logger.write(step)
        logger.log_value("b", 3)
        logger.rewind(10)
        logger.log_value("a", 20)
        logger.write(20)
    assert (tmp_path / "progress.csv").read_text() == "step,a\n10,10\n20,20\n"
    assert (tmp_path / "progress.jsonl").read_text().count('"step": 20') == 1
    assert "rewound to step 10" in (tmp_path / "log.txt").read_text()
    assert scalars_of(tmp_path) == {"a": [10, 20]}
