"""Pictures are asked for where somebody looks, and no more often than wished."""

from __future__ import annotations

import pytest
from boards import Held, settled, until

from parllel.operators import Board, read_telemetry


@pytest.fixture
def held(tmp_path):
    held = Held(tmp_path)
    held.set("a", "draw")
    return held


def asked_of(board):
    """Return for each step whether its picture was asked for."""
    steps = read_telemetry(board.folder / "telemetry" / "board_a_steps.jsonl")
    return [one["raw"] == "with a picture" for one in steps]


def steps_by_hand(board, n):
    for _ in range(n):
        before = board.snapshot()["cards"][0]["step"]
        board.step()
        until(board, lambda shown, n=before + 1: shown["cards"][0]["step"] == n)


def test_workers_draw_for_those_who_look(tmp_path, held):
    with Board([held.config("a"), held.config("b")], base=tmp_path, frames_per_s=0.001) as board:
        board.reset(0)
        settled(board, "ready")
        assert board.frame("a") is None
        board.look(1, ["b", "gone"])
        board.step(["a"])
        until(board, lambda shown: shown["cards"][0]["step"] == 1)
        board.look(1, ["a"])
        board.look(2, ["a"])
        board.leave(1)
        # Each step by hand, whatever the pace: it may be the last for long.
        for n in (2, 3):
            board.step(["a"])
            shown = until(board, lambda shown, n=n: shown["cards"][0]["frame"] == n - 1)
            frame = board.frame("a")
            assert (frame.number, frame.step) == (n - 1, n)
            assert frame.png.startswith(b"\x89PNG")
        board.leave(2)
        board.leave(2)
        board.step(["a"])
        shown = until(board, lambda shown: shown["cards"][0]["step"] == 4)
        assert shown["cards"][0]["frame"] == 2
        assert asked_of(board) == [False, True, True, False]


def test_cards_that_play_draw_at_their_rate(tmp_path, held):
    with Board([held.config("a")], base=tmp_path, speed=None, frames_per_s=0.001) as board:
        board.look("page", ["a"])
        board.reset(0)
        settled(board, "ready")
        board.play(go_on=True)
        until(board, lambda shown: shown["cards"][0]["totals"]["n_ended"] >= 3)
        # The reset's was drawn, and the next is due in a thousand seconds.
        assert board.snapshot()["cards"][0]["frame"] == 1
        assert not any(asked_of(board))
