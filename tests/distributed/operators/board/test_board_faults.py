"""Workers that die, hang, think for long, or answer errors: each is the matter of its own card."""

from __future__ import annotations

import threading
import time

import pytest
from boards import Held, begin, card_of, settled, until
from left_records import records
from lying_worker import lying

from parllel.distributed.operators import Board, OperatorLauncher
from parllel.distributed.operators.board.board import UnknownCardError
from parllel.distributed.operators.board.card_player import CardPlayer
from parllel.errors import ClosedError, WrongStateError


def stepped(name, n):
    return lambda shown: (
        card_of(shown, name)["step"] == n and card_of(shown, name)["status"] == "ready"
    )


def test_a_killed_worker_is_shown_by_its_card_alone_and_started_again(board, held):
    held.kill("b")
    shown = until(board, lambda shown: card_of(shown, "b")["status"] == "died")
    assert "was killed by SIGKILL" in card_of(shown, "b")["message"]
    assert card_of(shown, "b")["totals"]["n_failed"] == 1
    board.step()
    shown = until(board, stepped("a", 1))
    assert {card["id"]: card["message"] for card in shown["cards"] if card["id"] != "b"} == {
        "a": None,
        "c": None,
    }
    with pytest.raises(WrongStateError, match=r"card 'b': .* that is died; restart it first"):
        board.step(["b"])
    with pytest.raises(WrongStateError, match="card 'b': its worker has died; restart it"):
        board.reset(2, ["b"])
    board.reset(2)
    shown = until(board, lambda shown: card_of(shown, "a")["seed"] == 2)
    assert card_of(shown, "b")["status"] == "died"
    board.restart("b")
    shown = until(board, lambda shown: card_of(shown, "b")["status"] == "ready")
    assert (card_of(shown, "b")["seed"], card_of(shown, "b")["message"]) == (1, None)
    board.play()
    settled(board, "ended")
    assert [one["status"] for one in records(board.folder, "board_b", "episodes")] == [
        "failed",
        "ended",
    ]


def test_a_worker_that_dies_after_its_episode_is_noticed(board, held):
    board.play()
    settled(board, "ended")
    held.kill("a")
    shown = until(board, lambda shown: card_of(shown, "a")["status"] == "died")
    assert {card["status"] for card in shown["cards"]} == {"died", "ended"}
    assert card_of(shown, "a")["totals"] == card_of(shown, "b")["totals"]


def test_stop_is_taken_while_one_thinks_and_the_others_go_on(board, held):
    held.hold("a")
    board.set_speed(50.0)
    board.play()
    held.await_step("a")
    until(board, lambda shown: card_of(shown, "b")["step"] >= 2)
    board.stop()
    shown = board.snapshot()
    assert shown["phase"] == "stopped"
    assert card_of(shown, "a")["status"] == "thinking"
    settled(board, "ready", "ended", cards=["b", "c"])
    held.let_go("a")
    until(board, stepped("a", 1))


def test_a_reset_within_a_step_takes_the_reply_before(board, held):
    held.hold("a")
    board.step(["a"])
    held.await_step("a")
    board.reset(5, ["a", "b"])
    # By its seed: a moment after the reset it is as ready as before.
    shown = until(board, lambda shown: card_of(shown, "b")["seed"] == 5)
    assert (card_of(shown, "a")["status"], card_of(shown, "a")["seed"]) == ("thinking", 1)
    held.let_go("a")
    shown = until(board, lambda shown: card_of(shown, "a")["seed"] == 5)
    assert (card_of(shown, "a")["episode"], card_of(shown, "b")["episode"]) == (1, 1)
    board.play(["a"])
    until(board, lambda shown: card_of(shown, "a")["status"] == "ended")
    # The abandoned episode has its step, and no record of its own.
    assert [(one["episode"], one["step"]) for one in records(board.folder, "board_a", "steps")][
        :2
    ] == [
        (0, 1),
        (1, 1),
    ]
    assert [one["episode"] for one in records(board.folder, "board_a", "episodes")] == [1]


@pytest.mark.parametrize("wish", ["remove", "restart"])
def test_a_card_is_removed_and_restarted_within_a_step(board, held, wish):
    held.hold("a")
    board.step()
    held.await_step("a")
    before = held.pid_of("a")
    getattr(board, wish)("a")
    if wish == "remove":
        assert [card["id"] for card in board.snapshot()["cards"]] == ["b", "c"]
        with pytest.raises(UnknownCardError, match="there is no card 'a'"):
            board.frame("a")
        # At once, although the worker of the first may not have ended yet.
        board.launch(held.config("a"))
        board.reset(7, ["a"])
    until(board, lambda shown: card_of(shown, "a")["status"] == "ready")
    assert held.pid_of("a") != before
    held.let_go("a")
    board.play(["a"])
    shown = until(board, lambda shown: card_of(shown, "a")["status"] == "ended")
    assert card_of(shown, "a")["seed"] == (7 if wish == "remove" else 1)
    assert card_of(shown, "a")["totals"]["n_failed"] == 0
    assert [card_of(shown, name)["step"] for name in "bc"] == [1, 1]


def test_a_worker_that_hangs_is_ended_and_can_be_restarted(tmp_path, held):
    with Board([held.config("a")], base=tmp_path, step_timeout_s=3.0) as board:
        begin(board, 1)
        held.hold("a")
        board.step()
        shown = settled(board, "died")
        assert "did not answer 'step' within 3 s" in card_of(shown, "a")["message"]
        held.let_go("a")
        board.restart("a")
        settled(board, "ready")


def test_an_error_fails_the_episode_and_the_worker_goes_on(board, held):
    pid = held.pid_of("a")
    held.set("a", "error")
    board.play(autoplay=False)
    shown = settled(board, "ended", "failed")
    assert (card_of(shown, "a")["status"], card_of(shown, "a")["message"]) == (
        "failed",
        "held: no idea",
    )
    held.unset("a", "error")
    shown = begin(board)
    assert {card["seed"] for card in shown["cards"]} == {2}
    assert card_of(shown, "a")["message"] is None
    assert held.pid_of("a") == pid


def test_a_board_is_closed_in_the_midst_of_everything(tmp_path, held):
    names = ["new", "ready", "within", "playing", "ended", "removed", "restarted"]
    board = Board([held.config(name) for name in names], base=tmp_path, speed=5.0)
    board.reset(1, names[1:])
    settled(board, "ready", cards=names[1:])
    for name in ("within", "removed", "restarted"):
        held.hold(name)
    board.step(["within", "removed", "restarted"])
    board.play(["playing"])
    held.await_step("within")
    board.remove("removed")
    board.restart("restarted")
    board.launch(held.config("just launched"[:4]))
    board.close()
    board.close()
    # The guard of the tests sees that nothing is left.
    assert (board.folder / "results.json").is_file()
    for call in (board.reset, board.step, lambda: board.remove("new")):
        with pytest.raises(ClosedError, match="used after it was closed"):
            call()
    board.stop()
    assert board.snapshot()["phase"] == "stopped"


def test_a_restart_that_follows_a_reset_at_once_plays_its_seed(tmp_path):
    held = Held(tmp_path)
    with Board([held.config("a")], base=tmp_path) as board:
        for seed in range(10):
            board.reset(seed)
            board.restart("a")
            shown = settled(board, "ready")
            assert card_of(shown, "a")["seed"] == seed


def test_a_contradiction_is_shown_when_it_is_noticed(tmp_path):
    lies = {"step 2": {"step_index": 99}, "episode_end": {"total_reward": 9999}}
    index = "its worker says step_index 99, counted 2"
    with Board([lying(lies)], base=tmp_path / "runs") as board:
        begin(board, 42)
        board.step()
        until(board, lambda shown: shown["cards"][0]["step"] == 1)
        assert board.snapshot()["cards"][0]["message"] is None
        board.step()
        (card,) = until(board, lambda shown: shown["cards"][0]["step"] == 2)["cards"]
        assert card["message"] == index
        board.play()
        (card,) = settled(board, "ended")["cards"]
        assert card["message"] == f"{index}; its worker says total_reward 9999, counted 3"
        assert (card["totals"]["mean_reward"], card["step"]) == (3.0, 3)
        (card,) = begin(board, 43)["cards"]
        assert card["message"] is None


def test_a_board_is_closed_while_its_cards_begin(tmp_path, held, monkeypatch):
    make, start = CardPlayer._new_session, threading.Thread.start
    close = OperatorLauncher.close

    def close_late(launcher):
        time.sleep(0.3)
        close(launcher)

    def make_late(player):
        time.sleep(0.2)
        return make(player)

    def start_late(thread):
        if thread.name.startswith("end of"):
            time.sleep(0.2)
        start(thread)

    monkeypatch.setattr(CardPlayer, "_new_session", make_late)
    monkeypatch.setattr(threading.Thread, "start", start_late)
    monkeypatch.setattr(OperatorLauncher, "close", close_late)
    # The card's thread ends its session by itself, as the end was requested before there was one.
    with Board([held.config("a")], base=tmp_path):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("end of")]
