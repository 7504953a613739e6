from __future__ import annotations

import pytest

from parllel.runners import row_log
from parllel.runners.row_log import TimeAccount


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by what the test says."""
    now = [100.0]
    monkeypatch.setattr(row_log.time, "perf_counter", lambda: now[0])
    return now


def spend(account, clock, stage, seconds):
    with account.stage(stage):
        clock[0] += seconds


def test_seconds_are_counted_by_stage_and_row(clock):
    account = TimeAccount()
    for seconds in (2.0, 4.0):
        spend(account, clock, "sampling", seconds)
    spend(account, clock, "optimising", 3.0)
    account.see_parts({"inference": 1.0, "environments": 2.0, "transforms": 1.0})
    row = account.take_row()
    assert (row["sampling"], row["optimising"], row["logging"]) == (6, 3, 0)
    assert (row["inference"], row["environments"], row["transforms"]) == (1.5, 3.0, 1.5)
    assert account.wants_parts
    spend(account, clock, "sampling", 1.0)
    assert account.take_row()["sampling"] == 1
    assert [line.split() for line in account.lines()] == [
        ["sampling", "7.0", "s", "70.0%"],
        ["inference", "1.5", "s", "15.0%"],
        ["environments", "3.0", "s", "30.0%"],
        ["transforms", "1.5", "s", "15.0%"],
        ["optimising", "3.0", "s", "30.0%"],
        ["all", "10.0", "s,", "10.0", "s", "without", "imports", "and", "compiling"],
    ]


def test_compilation_is_counted_apart_in_every_stage(clock, monkeypatch):
    compiled = [50.0]
    monkeypatch.setattr(row_log, "seconds_compiling", lambda: compiled[0])
    monkeypatch.setattr(TimeAccount, "_seen_compiling_s", 0.0)
    account = TimeAccount()
    assert account.compiled_before_s == 50
    for stage in ("imports", "sampling"):
        with account.stage(stage):
            clock[0] += 5.0
            compiled[0] += 3.0
    row = account.take_row()
    assert (row["imports"], row["sampling"], row["compiling"]) == (2, 2, 6)
    assert account.lines()[-1].split()[:4] == ["all", "10.0", "s,", "2.0"]
    compiled[0] += 4.0  # while the next run of the process is built
    assert TimeAccount().compiled_before_s == 4
    assert TimeAccount().compiled_before_s == 0


def test_an_exception_does_not_lose_time(clock):
    account = TimeAccount()

    def fail():
        clock[0] += 5
        raise ZeroDivisionError("here")

    with pytest.raises(ZeroDivisionError, match="here"), account.stage("logging"):
        fail()
    assert account.take_row()["logging"] == 5


def test_it_goes_on_in_a_resumed_run(clock):
    account, other = TimeAccount(), TimeAccount()
    spend(account, clock, "evaluating", 2.0)
    account.take_row()
    spend(account, clock, "evaluating", 1.0)
    other.load_state(account.state())
    spend(other, clock, "evaluating", 1.0)
    assert other.take_row()["evaluating"] == 2
    assert other.lines() == [
        "evaluating          4.0 s 100.0%",
        "all                 4.0 s, 4.0 s without imports and compiling",
    ]


def test_an_account_without_imports_can_be_loaded(clock):
    account, earlier = TimeAccount(), TimeAccount()
    spend(account, clock, "evaluating", 2.0)
    state = {name: dict(part) for name, part in account.state().items()}
    for part in state.values():
        del part["imports"]
    earlier.load_state(state)
    spend(earlier, clock, "imports", 2.0)
    assert [line.split()[:2] for line in earlier.lines()] == [
        ["evaluating", "2.0"],
        ["imports", "2.0"],
        ["all", "4.0"],
    ]


def test_what_took_next_to_no_time_has_no_line(clock):
    account = TimeAccount()
    spend(account, clock, "sampling", 3.0)
    spend(account, clock, "imports", 1e-6)
    assert [line.split()[0] for line in account.lines()] == ["sampling", "all"]


def test_nothing_has_no_lines():
    assert TimeAccount().lines() == []
