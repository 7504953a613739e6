"""The Logger: what a row holds, and what happens when a writer fails."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parllel.logging import Logger, Writer


class Memory(Writer):
    """Keeps everything; raises what it is told to."""

    shows_messages = True

    def __init__(self, fail_in=None, error=None):
        self.rows, self.messages, self.rewound, self.synced, self.closed = [], [], [], 0, 0
        self.fail_in, self.error = fail_in, error or OSError("disk full")

    def write(self, step, values):
        self._maybe_fail("write")
        self.rows.append((step, dict(values)))

    def message(self, level, text):
        self._maybe_fail("message")
        self.messages.append((level, text))

    def rewind(self, step):
        self._maybe_fail("rewind")
        self.rewound.append(step)

    def sync(self):
        self._maybe_fail("sync")
        self.synced += 1

    def close(self):
        self.closed += 1
        self._maybe_fail("close")

    def _maybe_fail(self, where):
        if self.fail_in == where:
            raise self.error


class Silent(Memory):
    """Has no place for messages."""

    shows_messages = False


def test_a_row_goes_to_all_writers_and_starts_anew():
    first, second = Memory(), Memory()
    logger = Logger([first, second])
    logger.log_value("loss", 0.25)
    logger.log_value("epochs", np.int32(4))
    assert logger.write(10) == {"loss": 0.25, "epochs": 4}
    logger.log_value("loss", np.array(0.5, np.float32))  # allowed again: another row
    assert logger.write(np.int64(20)) == {"loss": 0.5}
    assert logger.write(30) == {}
    assert first.rows == second.rows == [(10, {"loss": 0.25, "epochs": 4}), (20, {"loss": 0.5})]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, 1),
        (np.bool_(False), 0),
        (7, 7),
        (np.uint8(7), 7),
        (0.5, 0.5),
        (np.float16(0.5), 0.5),
        (np.array(3), 3),
        (np.array(2.5), 2.5),
        (math.inf, math.inf),
        (np.float32(-np.inf), -math.inf),
    ],
)
def test_scalars_become_python_numbers(value, expected):
    logger = Logger([])
    logger.log_value("x", value)
    found = logger.write(0)["x"]
    assert found == expected
    assert type(found) is type(expected)


def test_nan_is_kept():
    logger = Logger([])
    logger.log_value("x", np.float32("nan"))
    assert math.isnan(logger.write(0)["x"])


@pytest.mark.parametrize("value", [None, "3", [1.0], np.zeros(1), 1j, {}, np.array("a")])
def test_other_values_are_refused_by_key(value):
    logger = Logger([])
    with pytest.raises(TypeError, match="Logger: 'policy/loss': expected a number, got"):
        logger.log_value("policy/loss", value)
    assert logger.write(0) == {}


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_array_statistics_equal_numpy(values):
    logger = Logger([])
    logger.log_array("r", np.array(values).reshape(1, -1))
    row = logger.write(0)
    assert list(row) == ["r/count", "r/mean", "r/min", "r/max", "r/std", "r/median"]
    ordered = sorted(values)
    middle = (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    assert row["r/count"] == len(values)
    assert (row["r/min"], row["r/max"]) == (ordered[0], ordered[-1])
    assert row["r/mean"] == pytest.approx(mean, rel=1e-9, abs=1e-6)
    assert row["r/std"] == pytest.approx(std, rel=1e-6, abs=1e-6)
    assert row["r/median"] == pytest.approx(middle, rel=1e-12)


def test_array_statistics_are_worked_out_in_float64():
    logger = Logger([])
    logger.log_array("r", np.full(100_000, 0.1, np.float32))
    logger.log_array("small", np.array([250, 250], np.uint8))
    row = logger.write(0)
    assert row["r/mean"] == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    assert row["small/mean"] == 250.0


def test_an_empty_array_logs_its_count_alone():
    logger = Logger([])
    logger.log_array("trajectory/return", [])
    assert logger.write(0) == {"trajectory/return/count": 0}


def test_arrays_with_infinities_are_logged_without_python_warnings():
    logger = Logger([])
    logger.log_array("r", [np.inf, 1.0])
    logger.log_array("n", [np.nan, 1.0])
    row = logger.write(0)
    assert (row["r/mean"], row["r/max"], row["r/min"]) == (math.inf, math.inf, 1.0)
    assert math.isnan(row["r/std"])
    assert math.isnan(row["n/median"])


@pytest.mark.parametrize("array", [None, ["a"], [[1.0], [1.0, 2.0]], [1j], [object()]])
def test_other_arrays_are_refused_by_key(array):
    with pytest.raises(TypeError, match="Logger: 'r': expected an array of real numbers"):
        Logger([]).log_array("r", array)


def test_a_key_is_logged_once_per_row():
    logger = Logger([])
    logger.log_value("loss", 1)
    with pytest.raises(ValueError, match="'loss' was logged twice"):
        logger.log_value("loss", 2)
    logger.log_value("r/std", 1)
    with pytest.raises(ValueError, match="'r/std' was logged twice"):
        logger.log_array("r", [1.0])
    assert logger.write(0) == {"loss": 1, "r/std": 1}  # nothing of the refused array


def test_keys_and_steps_are_checked():
    logger = Logger([])
    for key, said in {
        "": "key: expected a name, got ''",
        "step": "key: expected a name other than 'step'",
        "=cmd()": r"key: expected a name that does not begin with =.*formula, got '=cmd",
    }.items():
        with pytest.raises(ValueError, match=said):
            logger.log_value(key, 1)
    for log in (logger.log_value, logger.log_array):
        with pytest.raises(TypeError, match="key: expected a string, got 3"):
            log(3, 1)
    for step in (1.0, True, None):
        with pytest.raises(TypeError, match="step: expected an integer"):
            logger.write(step)
        with pytest.raises(TypeError, match="step: expected an integer"):
            logger.rewind(step)


def test_messages_go_to_all_writers():
    writer = Memory()
    logger = Logger([writer])
    logger.notice("starting")
    logger.warn("cage 3 is slow")
    assert writer.messages == [("notice", "starting"), ("warning", "cage 3 is slow")]


def test_messages_reach_standard_error_if_no_writer_shows_them(capsys):
    Logger([Silent()]).warn("look here")
    assert capsys.readouterr().err == "parllel: warning: look here\n"
    Logger([Silent(), Memory()]).warn("look here")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [OSError("disk full"), ValueError("strange"), MemoryError()])
def test_a_writer_that_raises_is_tried_again_with_each_row_after_one_warning(error):
    broken, healthy = Memory("write", error), Memory()
    logger = Logger([broken, healthy])
    for step in range(4):
        logger.log_value("x", step)
        assert logger.write(step) == {"x": step}
    assert [step for step, _ in healthy.rows] == [0, 1, 2, 3]
    warning = f"Memory failed, and is tried again with each row: {error!r}"
    assert healthy.messages == [("warning", warning)]
    assert logger.writers == (healthy,)
    logger.notice("a line might fit where a row does not")
    assert broken.messages == []

    broken.fail_in = None
    logger.log_value("x", 4)
    logger.write(4)
    assert [step for step, _ in broken.rows] == [4]
    works = ("notice", "Memory works again; rows that it misses: 4")
    assert healthy.messages[2:] == [works]
    assert broken.messages == [works]
    assert logger.writers == (broken, healthy)

    broken.fail_in = "message"
    logger.notice("one")
    assert healthy.messages[3:] == [("notice", "one"), ("warning", warning)]
    broken.fail_in = None
    logger.log_value("x", 5)
    logger.write(5)
    assert healthy.messages[5:] == [("notice", "Memory works again; rows that it misses: 0")]
    assert broken.closed == 0


def test_a_failing_writer_of_all_is_said_on_standard_error(capsys):
    writer = Memory("write")
    logger = Logger([writer])
    logger.log_value("x", 1)
    assert logger.write(0) == {"x": 1}
    error = capsys.readouterr().err
    assert "Memory failed, and is tried again with each row: OSError('disk full')" in error
    logger.notice("still here")
    assert "parllel: notice: still here" in capsys.readouterr().err
    writer.fail_in = None
    logger.log_value("x", 1)
    logger.write(1)
    logger.notice("back")
    assert capsys.readouterr().err == ""
    assert writer.messages[-1] == ("notice", "back")


def test_a_writer_may_fail_while_the_failure_of_another_is_reported(capsys):
    healthy = Memory()
    logger = Logger([Memory("write"), Memory("message"), Memory("close"), healthy])
    logger.log_value("x", 1)
    logger.write(0)
    assert len(healthy.rows) == 1
    assert len(healthy.messages) == 2
    logger.close()
    assert "Memory failed to close: OSError('disk full')" in healthy.messages[-1][1]


def test_standard_error_that_is_gone_ends_nothing(monkeypatch):
    class Gone:
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    logger = Logger([Memory("write")])
    logger.log_value("x", 1)
    assert logger.write(0) == {"x": 1}


def test_an_interrupt_is_not_swallowed():
    logger = Logger([Memory("write", KeyboardInterrupt())])
    logger.log_value("x", 1)
    with pytest.raises(KeyboardInterrupt):
        logger.write(0)


def test_close_closes_all_writers_once():
    writers = [Memory(), Memory()]
    with Logger(writers) as logger:
        logger.log_value("x", 1)
    logger.close()
    assert [writer.closed for writer in writers] == [1, 1]
    for use in (
        lambda: logger.log_value("x", 1),
        lambda: logger.log_array("x", [1]),
        lambda: logger.write(0),
        lambda: logger.notice("x"),
        lambda: logger.warn("x"),
        lambda: logger.rewind(0),
    ):
        with pytest.raises(RuntimeError, match="the Logger was used after close"):
            use()


def test_writers_are_checked():
    with pytest.raises(TypeError, match=r"Logger: writers: expected Writers, got 'log\.txt'"):
        Logger(["log.txt"])


class Lines:
    """A writer with all methods but those that it would inherit."""

    def write(self, step, values): ...

    def message(self, level, text): ...

    def close(self): ...


@pytest.mark.parametrize(
    ("writers", "said"),
    [
        ([Lines()], r"Writers, got a Lines, which does not inherit from parllel\.logging\.Writer$"),
        ([Lines], r"Writers, got the class Lines; call it$"),
        (Lines(), r"a list of Writers, got a Lines; give \[writer\]$"),
        (None, r"a list of Writers, got a NoneType$"),
    ],
)
def test_what_is_no_writer_is_refused_when_the_logger_is_made(writers, said):
    with pytest.raises(TypeError, match="^Logger: writers: expected " + said):
        Logger(writers)


# ---------------------------------------------------------------------- going back


def test_rewinding_drops_the_unwritten_row_and_reaches_all_writers():
    writers = [Memory(), Memory()]
    logger = Logger(writers)
    logger.log_value("x", 1)
    logger.rewind(np.int64(10))
    assert [writer.rewound for writer in writers] == [[10], [10]]
    logger.log_value("x", 2)
    assert logger.write(20) == {"x": 2}


def test_writers_are_synced_unless_they_fail():
    broken, failing, healthy = Memory("sync"), Memory("write"), Memory()
    logger = Logger([broken, failing, healthy])
    logger.log_value("x", 1)
    logger.write(10)
    for _ in range(2):
        logger.sync()
    assert (broken.synced, failing.synced, healthy.synced) == (0, 0, 2)
    assert [level for level, _ in healthy.messages] == ["warning"] * 2
    broken.fail_in = None
    logger.log_value("x", 2)
    logger.write(20)
    assert healthy.messages[2:] == [("notice", "Memory works again; rows that it misses: 0")]
    logger.sync()
    assert broken.synced == 1


def test_a_writer_need_not_rewind():
    class Plain(Writer):
        def write(self, step, values):
            pass

        def message(self, level, text):
            pass

        def close(self):
            pass

    logger = Logger([Plain()])
    logger.rewind(3)
    logger.sync()
    assert len(logger.writers) == 1


def test_a_writer_that_cannot_rewind_does_so_before_it_takes_another_row():
    broken, healthy = Memory("rewind"), Memory()
    logger = Logger([broken, healthy])
    logger.rewind(10)
    [(level, text)] = healthy.messages
    assert level == "warning"
    assert text.startswith("Memory failed, and is tried again with each row: OSError")
    logger.log_value("x", 1)
    logger.write(20)
    assert broken.rows == []
    logger.rewind(15)  # what it has not forgotten yet lies further back
    broken.fail_in = None
    logger.log_value("x", 1)
    logger.write(30)
    assert broken.rewound == [10]
    assert [step for step, _ in broken.rows] == [30]
    assert healthy.messages[1:] == [("notice", "Memory works again; rows that it misses: 1")]


# ---------------------------------------------------------------------- Python warnings


def warn_here(text, category=UserWarning):
    warnings.warn(text, category, stacklevel=1)


def test_python_warnings_become_messages_once_per_place_and_text():
    writer = Memory()
    logger = Logger([writer])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before = warnings.showwarning
        with logger.catch_warnings():
            for _ in range(3):
                warn_here("slow")
                warn_here("old", DeprecationWarning)
            warnings.warn("elsewhere", stacklevel=1)
        assert warnings.showwarning is before
    levels, texts = zip(*writer.messages, strict=True)
    assert levels == ("warning",) * 3
    line = warn_here.__code__.co_firstlineno + 1
    assert texts[0] == f"UserWarning: slow ({__file__}:{line})"
    assert texts[1] == f"DeprecationWarning: old ({__file__}:{line})"
    assert texts[2].startswith("UserWarning: elsewhere (")


def test_a_place_that_warns_of_different_things_is_heard_ten_times():
    """Environments that fail one after the other are warned of at one place; numbers change each time."""
    writer = Memory()
    with Logger([writer]) as logger, logger.catch_warnings(), warnings.catch_warnings():
        warnings.simplefilter("always")
        for i in range(30):
            warn_here(f"environment {i} is slow")
    texts = [text for _, text in writer.messages]
    assert len(texts) == 10
    assert "environment 9 is slow" in texts[9]
    assert texts[9].endswith("; further warnings of this place are left out")


def test_warnings_that_are_errors_go_on_raising():
    writer = Memory()
    with Logger([writer]) as logger, logger.catch_warnings(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="slow"):
            warn_here("slow")
        warnings.simplefilter("ignore")
        warn_here("slow")
    assert writer.messages == []


def test_warnings_that_somebody_else_records_are_theirs():
    writer = Memory()
    with Logger([writer]) as logger, logger.catch_warnings():
        with pytest.warns(UserWarning, match="slow"):
            warn_here("slow")
        assert writer.messages == []
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warn_here("slow")
    assert len(writer.messages) == 1


def test_warnings_are_shown_as_before_after_an_exception_and_a_closed_logger():
    before = warnings.showwarning
    logger = Logger([Memory()])
    with pytest.raises(ZeroDivisionError), logger.catch_warnings():
        raise ZeroDivisionError
    assert warnings.showwarning is before
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with logger.catch_warnings():
            logger.close()
            warn_here("late")
    assert [str(warning.message) for warning in shown] == ["late"]


def test_a_writer_that_warns_does_not_go_round_in_circles():
    class Warns(Memory):
        def message(self, level, text):
            super().message(level, text)
            warnings.warn("the writer is old", stacklevel=1)

    writer = Warns()
    logger = Logger([writer])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with logger.catch_warnings():
            warn_here("slow")
    assert len(writer.messages) == 2
    assert "the writer is old" in writer.messages[1][1]
