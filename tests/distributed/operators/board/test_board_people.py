"""People who play on cards, by the answers that a page would send."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import pytest
from boards import begin, card_of, settled, until
from left_records import records

from parllel.distributed.operators import Board, OperatorConfig
from parllel.errors import WrongStateError

LAKE = "FrozenLake-v1"
STILL = {"is_slippery": False}


def person(operator_id="me", env_id=LAKE, **options):
    return OperatorConfig("human", operator_id, env_id, **options)


def question_of(board, card_id="me"):
    """Wait until a card asks a person, and return the question."""
    shown = until(board, lambda shown: card_of(shown, card_id)["status"] == "waiting")
    (question,) = card_of(shown, card_id)["questions"]
    return question


def is_asked_after(number, shown):
    card = card_of(shown, "me")
    return card["status"] == "ended" or any(one["number"] > number for one in card["questions"])


def test_a_person_plays_an_episode_by_buttons(tmp_path):
    with Board([person(env_kwargs=STILL)], base=tmp_path) as board:
        begin(board, 7)
        board.play()
        question = question_of(board)
        names = [one["name"] for one in question["actions"]]
        assert (names, question["space"]) == (["0", "1", "2", "3"], "Discrete(4)")
        for action in (2, 2, 1, 1, 1, 2):
            with pytest.raises(ValueError, match=r"card 'me': action: expected one of 0, 1, 2, 3"):
                board.act("me", question["number"], 9)
            board.act("me", question["number"], action)
            with pytest.raises(WrongStateError, match="is no longer open"):
                board.act("me", question["number"], action)
            shown = until(board, partial(is_asked_after, question["number"]))
            (question,) = card_of(shown, "me")["questions"] or [None]
        card = card_of(shown, "me")
        assert (card["status"], card["episode_reward"], card["step"]) == ("ended", 1.0, 6)
        folder = board.folder
    env = gym.make(LAKE, **STILL)
    env.reset(seed=7)
    rewards = [env.step(action)[1] for action in (2, 2, 1, 1, 1, 2)]
    env.close()
    steps = records(folder, "board_me", "steps")
    assert [step["reward"] for step in steps] == rewards
    assert [step["executed"] for step in steps] == [2, 2, 1, 1, 1, 2]


def test_others_go_on_while_a_person_thinks(tmp_path):
    random = OperatorConfig("baseline", "random", "CartPole-v1", policy="random")
    with Board([person(), random], base=tmp_path) as board:
        begin(board, 1)
        board.play()
        shown = settled(board, "ended", cards=["random"])
        assert card_of(shown, "random")["step"] > 5
        number = question_of(board)["number"]
        board.stop()
        # What was asked stays: the person is within a step.
        assert question_of(board)["number"] == number
        board.act("me", number, 0)
        shown = settled(board, "ready", cards=["me"])
        assert card_of(shown, "me")["step"] == 1


def test_a_step_by_hand_asks_once(tmp_path, quick_people):
    with Board([person()], base=tmp_path) as board:
        begin(board, 1)
        board.step(["me"])
        board.act("me", question_of(board)["number"], 0)
        shown = until(board, lambda shown: card_of(shown, "me")["step"] == 1)
        shown = settled(board, "ready", "ended")
        assert card_of(shown, "me")["questions"] == []


@pytest.mark.parametrize("wish", ["reset", "restart", "remove", "close"])
def test_a_question_is_withdrawn_by_what_ends_the_episode(tmp_path, quick_people, wish):
    with Board([person()], base=tmp_path) as board:
        begin(board, 1)
        board.step(["me"])
        number = question_of(board)["number"]
        if wish == "close":
            return
        if wish == "remove":
            board.remove("me")
            assert board.snapshot()["cards"] == []
            return
        board.reset(2) if wish == "reset" else board.restart("me")
        with pytest.raises(WrongStateError, match=f"question {number} is no longer open"):
            board.act("me", number, 0)
        shown = settled(board, "ready")
        card = card_of(shown, "me")
        assert (card["step"], card["seed"], card["questions"]) == (
            0,
            2 if wish == "reset" else 1,
            [],
        )
        board.step(["me"])
        later = question_of(board)["number"]
        assert later > number
        board.act("me", later, 0)
        until(board, lambda shown: card_of(shown, "me")["step"] == 1)
