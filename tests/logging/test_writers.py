"""Writers, by reading back what they wrote."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys

import pytest
from rich.console import Console

from parllel.logging import (
    CsvWriter,
    JsonlWriter,
    Logger,
    TensorBoardWriter,
    TerminalWriter,
    TextWriter,
    Writer,
)

FILE_WRITERS = [CsvWriter, JsonlWriter, TensorBoardWriter, TextWriter]


class Memory(Writer):
    """Keeps messages."""

    def __init__(self):
        self.messages = []

    def write(self, step, values):
        pass

    def message(self, level, text):
        self.messages.append((level, text))

    def close(self):
        pass


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def read_events(folder):
    """Return `{tag: [(step, value), ...]}` as TensorBoard itself reads it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


# ---------------------------------------------------------------------- csv


def test_csv_rows_are_read_back(tmp_path):
    writer = CsvWriter(tmp_path)
    writer.write(10, {"loss": 0.1, "count": 3})
    writer.write(20, {"count": 4, "loss": 1e-300})
    assert writer.path == tmp_path / "progress.csv"
    assert writer.path.read_text() == "step,loss,count\n10,0.1,3\n20,1e-300,4\n"


def test_csv_keys_that_appear_later_lose_no_data(tmp_path):
    writer = CsvWriter(tmp_path)
    writer.write(1, {"a": 1.5})
    writer.write(2, {"b": 2.5})
    writer.write(3, {'odd, "key"\nof two lines': 3.5, "a": 4.5})
    odd = 'odd, "key"\nof two lines'
    assert read_csv(writer.path) == [
        {"step": "1", "a": "1.5", "b": "", odd: ""},
        {"step": "2", "a": "", "b": "2.5", odd: ""},
        {"step": "3", "a": "4.5", "b": "", odd: "3.5"},
    ]
    assert os.listdir(tmp_path) == ["progress.csv"]


def test_csv_numbers_that_are_not_finite(tmp_path):
    writer = CsvWriter(tmp_path)
    writer.write(1, {"a": math.nan, "b": math.inf, "c": -math.inf})
    assert writer.path.read_text().splitlines()[1] == "1,nan,inf,-inf"


@pytest.mark.parametrize("key", ["=1+1", "+a", "-loss", "@SUM(A1)", "\t=1+1", " @a"])
def test_csv_keys_that_are_formulas_are_refused(tmp_path, key):
    writer = CsvWriter(tmp_path)
    writer.write(1, {"a": 1})
    with pytest.raises(
        ValueError, match="CsvWriter: key: expected a name that does not begin with ="
    ):
        writer.write(2, {"a": 2, key: 3})
    writer.write(2, {"a": 2, "a=b-c@d": 3})
    assert writer.path.read_text() == "step,a,a=b-c@d\n1,1,\n2,2,3\n"


def test_csv_is_continued_with_its_columns(tmp_path):
    CsvWriter(tmp_path).write(1, {"a": 1, "b": 2})
    resumed = CsvWriter(tmp_path)
    resumed.write(2, {"b": 3})
    resumed.write(3, {"c": 4})
    assert resumed.path.read_text() == "step,a,b,c\n1,1,2,\n2,,3,\n3,,,4\n"


def test_csv_row_cut_short_by_a_crash_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "progress.csv"
    path.write_text("step,a,b\n1,10,20\n2,3")
    CsvWriter(tmp_path).write(3, {"a": 5, "b": 6})
    assert path.read_text() == "step,a,b\n1,10,20\n3,5,6\n"  # half a number is no number
    path.write_text("step,a,b\n1,10,20\n2,3")
    CsvWriter(tmp_path).write(3, {"c": 7})
    assert path.read_text() == "step,a,b,c\n1,10,20,\n3,,,7\n"


@pytest.mark.parametrize("content", ["s", "step", "step,lo", 'step,"odd, ', "\0" * 30, "s\0\0"])
def test_csv_header_cut_short_by_a_crash_is_written_again(content, tmp_path):
    path = tmp_path / "progress.csv"
    path.write_text(content)
    CsvWriter(tmp_path).write(3, {"loss": 5})
    assert path.read_text() == "step,loss\n3,5\n"


def test_csv_of_something_else_is_refused(tmp_path):
    for content in ("time,price\n1,2\n", "sometimes", "\n\ntime"):
        (tmp_path / "progress.csv").write_text(content)
        with pytest.raises(
            ValueError, match=r"CsvWriter: .*progress\.csv: expected a table whose first"
        ):
            CsvWriter(tmp_path)
        assert (tmp_path / "progress.csv").read_text() == content


def test_csv_rewrite_that_fails_leaves_the_rows_alone(tmp_path, monkeypatch):
    writer = CsvWriter(tmp_path)
    writer.write(1, {"a": 1})
    before = writer.path.read_bytes()

    def fail(source, target):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        writer.write(2, {"b": 2})
    assert writer.path.read_bytes() == before
    assert os.listdir(tmp_path) == ["progress.csv"]


@pytest.mark.parametrize("key", ["a", "b"])
def test_csv_file_that_was_removed_starts_anew_with_a_header(key, tmp_path):
    writer = CsvWriter(tmp_path)
    writer.write(1, {"a": 1})
    writer.path.unlink()
    writer.write(2, {key: 2})
    assert read_csv(writer.path) == [{"step": "2", "a": "", key: "2"}]


# ---------------------------------------------------------------------- text and JSON lines


def test_text_holds_rows_and_messages_with_the_time(tmp_path):
    with Logger([TextWriter(tmp_path)]) as logger:
        logger.notice("started")
        logger.log_value("policy/loss", 0.5)
        logger.log_value("n", math.inf)
        logger.write(7)
        logger.warn("first line\nsecond line: größer")
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d "
    pattern = (
        f"{time}notice: started\n"
        f"{time}step 7\n    policy/loss  0.5\n    n            inf\n"
        f"{time}warning: first line\n    second line: größer\n"
    )
    assert re.fullmatch(pattern, (tmp_path / "log.txt").read_text(encoding="utf-8"))


def test_text_and_json_files_are_continued(tmp_path):
    for kind in (TextWriter, JsonlWriter):
        kind(tmp_path).message("notice", "one")
        second = kind(tmp_path)
        second.message("notice", "two")
        lines = second.path.read_text().splitlines()
        assert len(lines) == 2
        assert "one" in lines[0]


def test_json_lines_are_read_back(tmp_path):
    writer = JsonlWriter(tmp_path)
    writer.write(1, {"a": 0.1, "b": 2})
    writer.message("warning", "odd\ntext")
    writer.write(2, {"a": math.nan, "c": -math.inf})
    first, message, second = map(json.loads, writer.path.read_text().splitlines())
    assert first == {"step": 1, "a": 0.1, "b": 2}
    assert message == {"warning": "odd\ntext"}
    assert second == {"step": 2, "a": "NaN", "c": "-Infinity"}


def refuse(constant):
    raise ValueError(f"{constant} is no JSON")


def test_json_lines_are_json_and_float_reads_them_back(tmp_path):
    values = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 10**400, "e": -0.0, "f": 1e300}
    writer = JsonlWriter(tmp_path)
    writer.write(1, values)
    writer.write(2, values)
    rows = [
        json.loads(line, parse_constant=refuse) for line in writer.path.read_text().splitlines()
    ]
    found = {key: value if key == "d" else float(value) for key, value in rows[0].items()}
    assert repr(found) == repr({"step": 1.0, **values})
    writer.rewind(1)  # which reads it as well
    assert json.loads(writer.path.read_text()) == rows[0]


# ---------------------------------------------------------------------- terminal


def terminal(width=60):
    stream = io.StringIO()
    return stream, TerminalWriter(Console(file=stream, width=width, force_terminal=False))


def test_terminal_shows_a_table(tmp_path):
    stream, writer = terminal()
    writer.write(12_000, {"ppo/loss": 0.123456789, "ppo/n": 1234567, "time[s]": math.nan})
    text = stream.getvalue()
    assert "step 12,000" in text
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in text.splitlines()
        if "│" in line
    ]
    assert cells == [["ppo/loss", "0.1235"], ["ppo/n", "1,234,567"], ["time[s]", "nan"]]
    assert sum("├" in line for line in text.splitlines()) == 1  # between ppo/ and time


def test_terminal_shows_the_statistics_of_an_array_on_one_line():
    stream, writer = terminal()
    statistics = {"count": 3, "mean": 3.0, "min": 1.0, "max": 60000.0, "std": 2.5, "median": 2.0}
    row = {"speed": 12345.6, **{f"return/{name}": value for name, value in statistics.items()}}
    writer.write(5, row)
    lines = [line for line in stream.getvalue().splitlines() if "return" in line or "mean" in line]
    cells = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in lines]
    assert cells == [
        ["", "mean", "std", "min", "median", "max"],
        ["return", "3", "2.5", "1", "2", "60,000"],
    ]


def test_terminal_shows_every_digit_of_an_int_and_every_value():
    stream, writer = terminal(width=100)
    row = {"seed": 2**63 + 1, "return": 7, "return/count": 2, "return/mean": 3.0, "return/max": 5.0}
    writer.write(5, row)
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in stream.getvalue().splitlines()
        if "│" in line
    ]
    assert cells == [
        ["seed", "9,223,372,036,854,775,809"],
        ["return", "7"],
        ["return/count", "2"],
        ["return/mean", "3"],
        ["return/max", "5"],
    ]


def test_terminal_folds_long_keys_instead_of_cutting_them():
    stream, writer = terminal(width=30)
    key = "a_very_long_key/" + "x" * 40
    writer.write(1, {key: 0.5})
    lines = [line for line in stream.getvalue().splitlines() if "│" in line]
    folded = "".join(line.split("│")[1].strip() for line in lines)
    assert folded == key


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (100, ["mean", "std", "min", "median", "max"]),
        (60, ["mean", "min", "max"]),
        (40, ["mean"]),
    ],
)
def test_terminal_leaves_columns_out_before_it_folds_keys_to_nothing(width, columns):
    stream, writer = terminal(width)
    statistics = {"count": 9, "mean": 1234.5, "min": -1e6, "max": 9.5, "std": 1e-7, "median": 1e12}
    row = {f"training/discounted_return/{name}": value for name, value in statistics.items()}
    writer.write(5, {"algorithm/policy_gradient_loss": -0.01234567, **row})
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    cells = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in lines]
    assert next(row[1:] for row in cells if row) == (columns if len(columns) > 1 else ["-0.01235"])
    keys = "".join(row[0] for row in cells if row)
    assert keys == "algorithm/policy_gradient_losstraining/discounted_return"
    assert not any("…" in line for line in lines)


def test_terminal_messages_are_not_taken_for_markup():
    stream, writer = terminal()
    writer.message("warning", "cage [3] said [/bold]")
    assert stream.getvalue() == "warning: cage [3] said [/bold]\n"


def test_terminal_prints_above_a_live_progress_bar():
    from rich.progress import Progress

    stream = io.StringIO()
    console = Console(file=stream, width=60, force_terminal=True)
    with Progress(console=console) as progress:
        progress.add_task("training", total=10)
        TerminalWriter(console).write(1, {"loss": 0.5})
    text = stream.getvalue()
    assert text.index("loss") < text.rindex("training")


def test_terminal_defaults_to_standard_output(capsys):
    TerminalWriter().message("notice", "hello")
    assert capsys.readouterr().out == "notice: hello\n"


def test_a_reader_that_goes_away_does_not_end_the_program():
    code = (
        "import os, sys\n"
        "from parllel.logging import Logger, TerminalWriter\n"
        "logger = Logger([TerminalWriter()])\n"
        "sys.stdin.read()\n"  # until the parent has closed its end of the output
        "for step in range(3):\n"
        "    logger.log_value('x', step)\n"
        "    logger.write(step)\n"
        "print(len(logger.writers), 'writers left', file=sys.stderr)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    child.stdout.close()
    child.stdout = None
    _, errors = child.communicate(timeout=30)
    assert errors.splitlines()[-1] == "0 writers left"
    assert errors.count("TerminalWriter failed") == 1
    assert "TerminalWriter failed, and is tried again with each row: BrokenPipeError" in errors
    assert "works again" not in errors


# ---------------------------------------------------------------------- TensorBoard


def test_tensorboard_reads_what_was_written(tmp_path):
    writer = TensorBoardWriter(tmp_path / "events")
    writer.write(10, {"policy/loss": 0.5, "n": 3})
    assert read_events(tmp_path / "events") == {"policy/loss": [(10, 0.5)], "n": [(10, 3.0)]}
    writer.write(20, {"policy/loss": math.inf, "other": math.nan})
    writer.message("notice", "nothing happens")
    events = read_events(tmp_path / "events")
    assert events["policy/loss"] == [(10, 0.5), (20, math.inf)]
    assert math.isnan(events["other"][0][1])
    writer.close()


def test_two_tensorboard_writers_do_not_share_a_file(tmp_path):
    first, second = TensorBoardWriter(tmp_path), TensorBoardWriter(tmp_path)
    first.write(1, {"a": 1.0})
    second.write(2, {"a": 2.0})
    assert first.path != second.path
    assert len(os.listdir(tmp_path)) == 2


def test_tensorboard_needs_neither_torch_nor_tensorflow(tmp_path):
    code = (
        "import sys\nfrom parllel.logging import TensorBoardWriter\n"
        "assert not any(name.startswith('tensorboard') for name in sys.modules)\n"
        f"TensorBoardWriter({str(tmp_path)!r}).write(1, {{'a': 1}})\n"
        "print(sorted({'torch', 'tensorflow', 'numba'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_tensorboard_that_is_missing_is_said_with_the_extra(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(
        ImportError, match=r"pip install '\.\[tensorboard\]' in a checkout of parllel"
    ):
        TensorBoardWriter(tmp_path)
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------------- trouble with files


@pytest.mark.parametrize("kind", FILE_WRITERS)
def test_folders_are_created_and_closing_twice_is_fine(kind, tmp_path):
    writer = kind(tmp_path / "a" / "b")
    writer.write(1, {"x": 1})
    writer.close()
    writer.close()
    assert writer.path.parent == tmp_path / "a" / "b"
    assert writer.path.stat().st_size > 0


@pytest.mark.parametrize("kind", FILE_WRITERS)
def test_a_folder_that_cannot_be_written_is_an_error_at_the_start(kind, tmp_path):
    (tmp_path / "file").write_text("in the way")
    message = f"{kind.__name__}: expected a writable folder: .*: '.*file"
    with pytest.raises(OSError, match=message):
        kind(tmp_path / "file")


@pytest.mark.parametrize("kind", FILE_WRITERS)
def test_a_removed_folder_stops_the_writer_until_it_is_back(kind, tmp_path):
    other = TextWriter(tmp_path / "kept")
    with Logger([kind(tmp_path / "removed"), other]) as logger:
        logger.log_value("x", 1)
        logger.write(1)
        shutil.rmtree(tmp_path / "removed")
        for step in (2, 3):
            logger.log_value("x", step)
            logger.write(step)
        assert logger.writers == (other,)
        (tmp_path / "removed").mkdir()
        logger.log_value("x", 4)
        logger.write(4)
        assert len(logger.writers) == 2
    text = other.path.read_text()
    assert text.count("warning: ") == 1
    assert f"{kind.__name__} failed, and is tried again with each row: FileNotFoundError" in text
    assert f"notice: {kind.__name__} works again; rows that it misses: 2" in text
    assert [f"step {step}\n" in text for step in (1, 2, 3, 4)] == [True] * 4
    assert len(os.listdir(tmp_path / "removed")) == 1


@pytest.mark.parametrize("kind", FILE_WRITERS)
def test_whoever_only_looks_leaves_no_events_and_no_rows(kind, tmp_path):
    kind(tmp_path).close()
    assert all(path.stat().st_size == 0 for path in tmp_path.iterdir())
    assert not list(tmp_path.glob("events*"))


class Stream(io.StringIO):
    """Full, while it is told to be."""

    full = False

    def write(self, text):
        if self.full and text:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_what_a_full_terminal_refused_is_not_repeated_later():
    stream = Stream()
    other = Memory()
    console = Console(file=stream, width=60, force_terminal=False)
    logger = Logger([TerminalWriter(console), other])
    for step in range(1, 7):
        stream.full = 1 < step < 5
        logger.log_value("x", step)
        logger.write(step)
    text = stream.getvalue()
    assert re.findall(r"^step (\d)", text, re.M) == ["1", "5", "6"]
    assert [level for level, _ in other.messages] == ["warning", "notice"]
    assert other.messages[1][1] == "TerminalWriter works again; rows that it misses: 3"


def test_one_row_through_all_writers(tmp_path):
    stream, on_terminal = terminal()
    writers = [on_terminal, *(kind(tmp_path) for kind in FILE_WRITERS)]
    with Logger(writers) as logger:
        logger.log_array("return", [1.0, 2.0, 6.0])
        row = logger.write(5)
    assert row["return/mean"] == 3.0
    assert row["return/median"] == 2.0
    [cells] = read_csv(tmp_path / "progress.csv")
    assert {key: float(cell) for key, cell in cells.items()} == {"step": 5.0, **row}
    assert json.loads((tmp_path / "progress.jsonl").read_text()) == {"step": 5, **row}
    assert read_events(tmp_path)["return/max"] == [(5, 6.0)]
    assert "return/std" in (tmp_path / "log.txt").read_text()
    assert "return" in stream.getvalue()
