"""Cards that are launched, reset, stepped and played by hand."""

from __future__ import annotations

import pytest
from boards import begin, card_of, settled, until
from left_records import records

from parllel.distributed.operators import Board, OperatorConfig
from parllel.errors import WrongStateError

CARTPOLE = "CartPole-v1"


def baseline(operator_id: str, policy: str = "random", **options) -> OperatorConfig:
    return OperatorConfig("baseline", operator_id, CARTPOLE, policy=policy, **options)


def test_three_operators_are_launched_reset_stepped_and_played(tmp_path):
    with Board([baseline("a"), baseline("b", "noop")], base=tmp_path) as board:
        assert board.launch(baseline("c", "noop")) == "c"
        shown = board.snapshot()
        assert [card["id"] for card in shown["cards"]] == ["a", "b", "c"]
        assert {card["status"] for card in shown["cards"]} == {"new"}
        assert (shown["phase"], shown["seed"]) == ("stopped", None)
        shown = begin(board, 42)
        assert {(card["episode"], card["seed"], card["step"]) for card in shown["cards"]} == {
            (0, 42, 0)
        }
        board.step()
        board.step(["a"])
        until(board, lambda shown: [card["step"] for card in shown["cards"]] == [2, 1, 1])
        shown = settled(board, "ready")
        assert shown["phase"] == "stopped"
        assert card_of(shown, "b")["last"]["action"] == 0
        board.play()
        assert board.snapshot()["phase"] == "playing"
        shown = settled(board, "ended")
        assert shown["phase"] == "stopped"
        b, c = card_of(shown, "b"), card_of(shown, "c")
        assert b["totals"] == c["totals"]
        assert b["totals"]["mean_reward"] == b["step"] == b["episode_reward"]
        with pytest.raises(
            WrongStateError,
            match="card 'a': expected a card that is in an episode, got one that is ended",
        ):
            board.step()
        folder = board.folder
    episodes = records(folder, "board_b", "episodes")
    assert [(one["episode"], one["seed"], one["status"]) for one in episodes] == [(0, 42, "ended")]
    assert (folder / "results.json").is_file()


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "fast"])
def test_a_rate_is_a_number_above_zero(tmp_path, value):
    for name in ("frames_per_s", "speed"):
        with pytest.raises(ValueError, match=f"{name}: expected a number above 0, got"):
            Board(base=tmp_path / "runs", **{name: value})
    assert not (tmp_path / "runs").exists()
    with Board(base=tmp_path) as board:
        with pytest.raises(ValueError, match="steps_per_s: expected a number above 0, got"):
            board.set_speed(value)
        with pytest.raises(ValueError, match="seed: expected an int of at least 0, got"):
            board.reset(value if value else -1)
