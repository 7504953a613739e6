from __future__ import annotations

import pytest
from playing import always, played, script

from parllel.distributed.remote import make
from parllel.distributed.remote.games.connectx import best_column, lowest_free, wins

SMALL = {"rows": 3, "columns": 3, "inarow": 3}


def test_agents_take_turns_and_the_board_fills_from_below():
    with make("connectx", SMALL) as env:
        assert [state["status"] for state in env.state] == ["ACTIVE", "INACTIVE"]
        row = env.step([1, None])
        assert [state["status"] for state in row] == ["INACTIVE", "ACTIVE"]
        assert row[0]["observation"]["board"] == [0, 0, 0, 0, 0, 0, 0, 1, 0]
        row = env.step([None, 1])
        assert row[0]["observation"]["board"] == [0, 0, 0, 0, 2, 0, 0, 1, 0]
        assert env.observation(1)["board"] == row[0]["observation"]["board"]
        assert env.observation(1)["mark"] == 2
        # The steps before are as they were.
        assert env.steps[1][0]["observation"]["board"] == [0, 0, 0, 0, 0, 0, 0, 1, 0]


def test_three_in_a_row_win():
    with make("connectx", SMALL) as env:
        steps = env.run([script(0, 1, 2), script(0, 1)])
    assert played(steps)[-1] == [(2, 1, "DONE"), (0, -1, "DONE")]
    assert env.render("ansi") == (
        "+---+---+---+\n| 0 | 0 | 0 |\n+---+---+---+\n| 2 | 2 | 0 |\n+---+---+---+\n"
        "| 1 | 1 | 1 |\n+---+---+---+\n"
    )


def test_a_full_board_is_a_tie():
    with make("connectx", {"rows": 2, "columns": 2, "inarow": 3}) as env:
        steps = env.run([script(0, 0), script(1, 1)])
    assert played(steps)[-1] == [(0, 0, "DONE"), (1, 0, "DONE")]


def test_a_full_column_and_one_that_is_not_there_are_refused():
    with make("connectx", SMALL) as env:
        steps = env.run([always(1), always(1)])
        assert played(steps)[-1] == [(0, 0, "DONE"), (1, None, "INVALID")]
        assert steps[-1][1]["info"]["reason"] == "column 1 is full"
        steps = env.run([always(3), always(1)])
        assert played(steps)[-1] == [(3, None, "INVALID"), (0, 0, "DONE")]
        assert steps[-1][0]["info"]["reason"] == "expected a column from 0 to 2, got 3"
        # The board is as before the move.
        assert set(steps[-1][0]["observation"]["board"]) == {0}


@pytest.mark.parametrize(("episode_steps", "n_states"), [(1, 2), (2, 2), (3, 3), (4, 4)])
def test_it_ends_after_episode_steps(episode_steps, n_states):
    with make("connectx", {"episodeSteps": episode_steps}) as env:
        steps = env.run([always(1), always(2)])
    assert len(steps) == n_states
    assert [state["status"] for state in steps[-1]] == ["DONE", "DONE"]


def test_an_error_ends_it_without_a_winner():
    with make("connectx") as env:
        steps = env.run([always(1), script(0, OSError("no"))])
    assert played(steps)[-1] == [(0, 0, "DONE"), (None, None, "ERROR")]


@pytest.mark.parametrize(
    ("board", "cell", "won"),
    [
        ("........111.", (2, 1), True),
        ("........11.1", (2, 3), False),
        ("..1..1..1...", (1, 1), True),
        ("1....1....1.", (0, 0), True),
        (".1...1...1..", (0, 1), True),
        # A line does not go on in the next row.
        ("..111.......", (0, 3), False),
    ],
)
def test_lines_in_all_directions_win(board, cell, won):
    cells = [int(mark == "1") for mark in board]
    assert wins(cells, *cell, 4, 3, 3) is won


def test_checkers_fall_to_the_lowest_free_row():
    board = [0, 0, 0, 1, 2, 1]
    assert [lowest_free(board, column, 2, 3) for column in (0, 1)] == [1, 0]
    assert lowest_free([1, 0, 1, 0], 0, 2, 2) == -1


def test_negamax_wins_at_once_and_stops_a_line_of_the_other():
    empty = [0] * 42
    two = [*empty[:35], 1, 1, 1, 0, 2, 2, 0]
    assert best_column(list(two), 1, 7, 6, 4) == 3
    assert best_column(list(two), 2, 7, 6, 4) == 3
    # It gives the board back as it was, and is quick on a wide one.
    wide = [0] * 2500
    assert best_column(wide, 1, 100, 25, 4) in range(100)
    assert wide == [0] * 2500


def test_negamax_beats_random():
    with make("connectx") as env:
        wins = sum(env.run(["random", "negamax"])[-1][1]["reward"] == 1 for _ in range(5))
    assert wins >= 4


def test_boards_are_bounded():
    with pytest.raises(ValueError, match="a board of at most 2500 cells, got 1000000"):
        make("connectx", {"rows": 1000, "columns": 1000})


def test_the_picture_shows_each_checker():
    with make("connectx", SMALL) as env:
        env.step([1, None])
        *_, (game, position) = env.positions()
        picture = game.picture(position)
    assert picture.count("<circle") == 9
    assert picture.count("#1c7ed6") == 1
