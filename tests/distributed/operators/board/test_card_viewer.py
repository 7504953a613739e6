"""Pictures are asked for where somebody looks, and no more often than wished."""

from __future__ import annotations

import io

import gymnasium as gym
import numpy as np
import pytest
from boards import Held, begin, settled, until
from left_records import records
from PIL import Image
from playing_games import FOUR, config_of, player

from parllel.distributed.operators import Board, OperatorConfig


@pytest.fixture
def held(tmp_path):
    held = Held(tmp_path)
    held.set("a", "draw")
    return held


def asked_of(board):
    """Return for each step whether its picture was asked for."""
    return [one["raw"] == "with a picture" for one in records(board.folder, "board_a", "steps")]


def steps_by_hand(board, n):
    for _ in range(n):
        before = board.snapshot()["cards"][0]["step"]
        board.step()
        until(board, lambda shown, n=before + 1: shown["cards"][0]["step"] == n)


def test_workers_draw_for_those_who_look(tmp_path, held):
    with Board([held.config("a"), held.config("b")], base=tmp_path, frames_per_s=0.001) as board:
        begin(board, 0)
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
        begin(board, 0)
        board.play(autoplay=True)
        until(board, lambda shown: shown["cards"][0]["totals"]["n_ended"] >= 3)
        # The reset's was drawn, and the next is due in a thousand seconds.
        assert board.snapshot()["cards"][0]["frame"] == 1
        assert not any(asked_of(board))


def picture_of(frame):
    with Image.open(io.BytesIO(frame.png)) as picture:
        return np.asarray(picture.convert("RGB"))


def test_the_last_picture_of_an_episode_is_that_of_its_last_step(tmp_path):
    noop = OperatorConfig("baseline", "a", "CartPole-v1", policy="noop")
    with Board([noop], base=tmp_path, speed=None, frames_per_s=0.001) as board:
        board.look("page", ["a"])
        begin(board, 3)
        board.play()
        (card,) = settled(board, "ended")["cards"]
        frame = board.frame("a")
        # That of the reset, and that of the end: no other was due.
        assert (frame.step, frame.number) == (card["step"], 2)
    with gym.make("CartPole-v1", render_mode="rgb_array") as env:
        env.reset(seed=3)
        for _ in range(card["step"]):
            env.step(0)
        np.testing.assert_array_equal(picture_of(frame), env.render())


def test_the_last_picture_of_a_truncated_episode_comes_from_any_worker(tmp_path, held):
    config = held.config("a")
    config = OperatorConfig("program", "a", worker=config.worker, max_steps=3)
    with Board([config], base=tmp_path, speed=None, frames_per_s=0.001) as board:
        board.look("page", ["a"])
        begin(board, 0)
        board.play()
        settled(board, "ended")
        assert board.frame("a").step == 3
        assert asked_of(board) == [False, False, True]


@pytest.mark.parametrize("end", ["won", "cut", "forfeit"])
def test_the_last_picture_of_a_game_is_that_of_its_last_step(tmp_path, end):
    first = "def act(command):\n    return command['legal_actions'][0]"
    wrong = first if end != "forfeit" else "def act(command):\n    return 99"
    players = {
        "player_0": player(tmp_path, "one", first),
        "player_1": player(tmp_path, "two", wrong),
    }
    config = config_of(FOUR, players, max_steps=3 if end == "cut" else None, illegal="forfeit")
    with Board([config], base=tmp_path, speed=None, frames_per_s=0.001) as board:
        board.look("page", ["game"])
        begin(board, 3)
        board.play()
        (card,) = settled(board, "ended")["cards"]
        assert board.frame("game").step == card["step"]
        assert card["step"] == {"cut": 3, "forfeit": 2}.get(end, card["step"])


def test_the_end_is_drawn_for_a_page_that_shows_other_cards(tmp_path):
    noop = OperatorConfig("baseline", "a", "CartPole-v1", policy="noop")
    with Board([noop], base=tmp_path, speed=None) as board:
        board.look("page", [])
        begin(board, 3)
        board.play()
        (card,) = settled(board, "ended")["cards"]
        assert (board.frame("a").number, board.frame("a").step) == (1, card["step"])


def test_nobody_draws_the_end_of_what_nobody_looks_at(tmp_path):
    noop = OperatorConfig("baseline", "a", "CartPole-v1", policy="noop")
    with Board([noop], base=tmp_path, speed=None) as board:
        begin(board, 3)
        board.play()
        settled(board, "ended")
        assert board.frame("a") is None


def test_a_person_sees_what_was_drawn_before_anybody_looked(tmp_path):
    players = {"player_0": OperatorConfig("human", "me"), "player_1": "noop"}
    with Board([config_of(FOUR, players)], base=tmp_path) as board:
        begin(board, 3)
        board.step(["game"])
        settled(board, "waiting")
        assert board.frame("game").step == 0
