"""A step of all cards is one step of each: the next begins when every card has finished the last."""

from __future__ import annotations

import pytest
from boards import begin, card_of, settled, until

from parllel.distributed.operators import Board, OperatorConfig
from parllel.errors import WrongStateError

EXPERIMENT = """
import sys
from parllel.distributed.operators import Experiment, OperatorConfig

def config(name, limit):
    return OperatorConfig(
        "program", name, worker=[sys.executable, "-S", "-E", {worker!r}, {folder!r}, name], max_steps=limit
    )

me = OperatorConfig("human", "me", "FrozenLake-v1")
experiment = Experiment(
    "e", [config("a", 2), config("b", 4), *[me][:{people}]], seeds=[1, 2], mode={mode!r}
)
"""


def steps_of(shown, names="abc"):
    return [card_of(shown, name)["step"] for name in names]


def until_all_took(board, n, names="abc"):
    """Wait until all cards have taken n steps; at no time is one two steps ahead of another."""

    def holds(shown):
        steps = steps_of(shown, names)
        assert max(steps) - min(steps) <= 1, steps
        return steps == [n] * len(names) and shown["steps_left"] == 0

    return until(board, holds)


def test_four_clicks_are_four_steps_of_each_although_one_is_slow(board, held):
    held.hold("a")
    for _ in range(4):
        board.step()
    held.await_step("a")
    until(board, lambda shown: steps_of(shown) == [0, 1, 1])
    shown = settled(board, "ready", cards=["b", "c"])
    assert (shown["steps_left"], shown["phase"]) == (4, "stopped")
    held.let_go("a")
    until_all_took(board, 4)
    settled(board, "ready")


@pytest.mark.parametrize("wish", ["kill", "remove", "restart"])
@pytest.mark.few(1)
def test_a_card_that_is_gone_holds_up_nobody(board, held, wish):
    held.hold("a")
    for _ in range(3):
        board.step()
    held.await_step("a")
    held.kill("a") if wish == "kill" else getattr(board, wish)("a")
    if wish == "restart":
        # As a reset, it takes back the steps that have not begun.
        until(board, lambda shown: shown["steps_left"] == 0)
        return
    shown = until_all_took(board, 3, "bc")
    assert wish == "remove" or card_of(shown, "a")["status"] == "died"


def test_a_card_whose_episode_ends_or_fails_holds_up_nobody(board, held):
    for _ in range(3):
        board.step(["b"])
    until(board, lambda shown: steps_of(shown) == [0, 3, 0])
    held.set("c", "error")
    for _ in range(4):
        board.step()
    shown = until(board, lambda shown: steps_of(shown) == [4, 5, 0])
    shown = until(board, lambda shown: shown["steps_left"] == 0)
    assert [card["status"] for card in shown["cards"]] == ["ready", "ended", "failed"]


@pytest.mark.parametrize("wish", ["stop", "play", "reset"])
def test_steps_that_have_not_begun_are_taken_back(board, held, wish):
    held.hold("a")
    for _ in range(4):
        board.step()
    held.await_step("a")
    until(board, lambda shown: steps_of(shown) == [0, 1, 1])
    getattr(board, wish)()
    if wish == "play":
        settled(board, "ended", cards=["b", "c"])
    held.let_go("a")
    if wish == "play":
        settled(board, "ended")
        return
    n, seed = {"stop": (1, 1), "reset": (0, 2)}[wish]
    shown = until(board, lambda shown: {card["seed"] for card in shown["cards"]} == {seed})
    until_all_took(board, n)
    shown = settled(board, "ready")
    assert (steps_of(shown), shown["steps_left"]) == ([n] * 3, 0)
    # The next is taken as any.
    board.step()
    until_all_took(board, n + 1)


def test_people_take_no_step_of_all(tmp_path, held, quick_people):
    me = OperatorConfig("human", "me", "FrozenLake-v1")
    with Board([held.config("a"), me], base=tmp_path) as board:
        begin(board, 1)
        for _ in range(2):
            board.step()
        until_all_took(board, 2, "a")
        shown = settled(board, "ready")
        assert (card_of(shown, "me")["step"], card_of(shown, "me")["questions"]) == (0, [])
        # One who is asked is not waited for.
        board.step(["me"])
        until(board, lambda shown: card_of(shown, "me")["status"] == "waiting")
        board.step()
        until(board, lambda shown: card_of(shown, "a")["step"] == 3)
        board.remove("a")
        with pytest.raises(
            WrongStateError, match="card 'me' has a human player, who decides when to step"
        ):
            board.step()


def test_a_card_that_plays_takes_no_step_of_all(board, held):
    board.set_speed(0.001)
    board.play(["a", "b"])
    before = steps_of(board.snapshot(), "ab")
    board.step()
    until(board, lambda shown: card_of(shown, "c")["step"] == 1)
    assert max(steps_of(board.snapshot(), "ab")) <= max(before) + 1
    board.play()
    with pytest.raises(WrongStateError, match="card 'a' is playing by itself; stop it first"):
        board.step()


@pytest.mark.parametrize("mode", ["free", "lockstep"])
def test_steps_of_all_take_an_experiment_to_its_end(tmp_path, held, mode):
    script = tmp_path / "e.py"
    worker = held.config("a").worker[3]
    script.write_text(EXPERIMENT.format(worker=worker, folder=str(tmp_path), mode=mode, people=0))
    with Board(base=tmp_path / "runs", scripts=[script]) as board:
        board.watch(str(script))
        settled(board, "ready")
        # Two episodes of four steps, and the moments at which they begin.
        for _ in range(12):
            if board.snapshot()["experiment"]["n_done"] == 4:
                break
            board.step()
            until(board, lambda shown: shown["steps_left"] == 0)
        shown = until(board, lambda shown: shown["experiment"]["state"] != "running")
        assert (shown["experiment"]["state"], shown["experiment"]["n_done"]) == ("ended", 4)


def test_people_of_an_experiment_in_lock_step_are_waited_for(tmp_path, held, quick_people):
    script = tmp_path / "e.py"
    worker = held.config("a").worker[3]
    script.write_text(
        EXPERIMENT.format(worker=worker, folder=str(tmp_path), mode="lockstep", people=1)
    )
    with Board(base=tmp_path / "runs", scripts=[script]) as board:
        board.watch(str(script))
        settled(board, "ready")
        board.step()
        board.step()
        for n in (1, 2):
            # All others are at the same step, and wait for the answer.
            shown = until(board, lambda shown: card_of(shown, "me")["questions"])
            (question,) = card_of(shown, "me")["questions"]
            until(board, lambda shown, n=n: steps_of(shown, ("a", "b", "me")) == [n, n, n - 1])
            board.act("me", question["number"], 0)
        until(board, lambda shown: shown["steps_left"] == 0)
