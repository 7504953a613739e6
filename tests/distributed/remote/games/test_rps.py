from __future__ import annotations

import pytest
from playing import always, played, script

from parllel.distributed.remote import make
from parllel.distributed.remote.games.rps import compare

SHORT = {"episodeSteps": 4, "tieRewardThreshold": 1}


def test_the_first_state_has_no_last_action():
    with make("rps") as env:
        first, second = env.state
    assert first["observation"] == {"remainingOverageTime": 60, "step": 0, "reward": 0}
    # What all agents see is in the first state alone, as in the files of others.
    assert second["observation"] == {"remainingOverageTime": 60, "reward": 0}
    assert (first["action"], first["reward"], first["status"]) == (0, 0, "ACTIVE")


def test_scores_add_up_and_each_sees_the_sign_of_the_other():
    with make("rps", {"episodeSteps": 10}) as env:
        env.step([0, 1])
        row = env.step([2, 1])
    assert [state["reward"] for state in row] == [0, 0]
    row = env.steps[1]
    assert [state["reward"] for state in row] == [-1, 1]
    assert [state["observation"]["lastOpponentAction"] for state in row] == [1, 0]


@pytest.mark.parametrize(
    ("threshold", "rewards"), [(3, [-3, 3]), (4, [0, 0])], ids=["a win", "a tie"]
)
def test_a_score_below_the_threshold_is_a_tie(threshold, rewards):
    with make("rps", {"episodeSteps": 4, "tieRewardThreshold": threshold}) as env:
        steps = env.run(["rock", "paper"])
    assert [state["reward"] for state in steps[-1]] == rewards
    assert [state["reward"] for state in steps[2]] == [-2, 2]
    assert len(steps) == 4


@pytest.mark.parametrize("signs", [3, 4, 5])
def test_every_sign_beats_half_of_the_others(signs):
    # By hand: paper (1) beats rock (0), scissors (2) paper, rock scissors; 3 and 4 go on in this way.
    beats = {(1, 0), (2, 1), (0, 2), (3, 0), (3, 2), (1, 3), (4, 1), (4, 3), (0, 4), (2, 4)}
    for one in range(signs):
        for other in range(signs):
            expected = ((one, other) in beats) - ((other, one) in beats)
            assert compare(one, other) == expected


@pytest.mark.parametrize("bad", [5, -1, "x", 1.5, True, [0]])
def test_an_action_outside_of_the_schema_loses(bad):
    with make("rps", SHORT) as env:
        steps = env.run([script(1, bad), always(0)])
    assert played(steps)[-1] == [(None, None, "INVALID"), (0, 1, "DONE")]
    assert len(steps) == 3
    assert steps[-1][0]["info"]["reason"].startswith("action")


@pytest.mark.parametrize("bad", [3, 1.0])
def test_a_sign_that_is_not_played_with_is_refused_and_stays_in_the_replay(bad):
    with make("rps", SHORT) as env:
        steps = env.run([always(bad), always(0)])
    assert played(steps)[-1] == [(bad, None, "INVALID"), (0, 1, "DONE")]
    assert "expected a sign from 0 to 2" in steps[-1][0]["info"]["reason"]


def test_if_both_fail_no_one_wins():
    with make("rps", SHORT) as env:
        steps = env.run([always(9), script(ValueError("lost"))])
    assert played(steps)[-1] == [(None, None, "INVALID"), (None, None, "ERROR")]
    assert "lost" in steps[-1][1]["info"]["reason"]


def test_reactionary_plays_the_sign_above_the_last_one_of_the_other():
    with make("rps", {"episodeSteps": 6, "signs": 5}) as env:
        steps = env.run([script(4, 0, 2, 2, 1), "reactionary"])
    assert [row[1]["action"] for row in steps[2:]] == [0, 1, 3, 3]
    assert "reaction" in env.agents


def test_counter_reactionary_expects_its_winning_sign_to_be_answered(monkeypatch):
    monkeypatch.setattr("random.randrange", lambda n: 0)
    with make("rps", {"episodeSteps": 5}) as env:
        steps = env.run([script(2, 1, 1, 0), "counter_reactionary"])
    # Rock won: paper is expected, which scissors beat, and win; rock is expected, which paper beats. That is
    # a tie, so paper is expected again.
    assert [row[1]["action"] for row in steps[1:]] == [0, 2, 1, 2]


def test_statistical_beats_the_most_frequent_sign_and_the_first_of_equals():
    with make("rps", {"episodeSteps": 7}) as env:
        steps = env.run([script(2, 0, 0, 2, 2, 1), "statistical"])
    assert [row[1]["action"] for row in steps[1:]] == [0, 0, 0, 1, 0, 0]


def test_two_agents_of_one_name_remember_for_themselves():
    with make("rps", {"episodeSteps": 5}) as env:
        assert env.agents["statistical"] is not env.agents["statistical"]
        assert env.agents["rock"] is env.agents["rock"]
        assert set(env.agents) >= {"rock", "paper", "scissors", "copy_opponent", "statistical"}
        # With counts in common the second would see four signs after two steps.
        steps = env.run(["statistical", "statistical"])
    assert played(steps)[1] == [(0, 0, "ACTIVE"), (0, 0, "ACTIVE")]


def test_it_is_shown_as_text_and_as_a_picture():
    with make("rps", SHORT) as env:
        assert env.render("ansi") == "Step 0: start, score 0 to 0\n"
        env.step([0, 1])
        assert env.render("ansi") == "Step 1: rock vs paper, score -1 to 1\n"
        (_, (game, position)) = env.positions()
        assert ">rock<" in game.picture(position)
        with pytest.raises(ValueError, match="rps: expected a game that draws pixels"):
            env.render("rgb_array")
