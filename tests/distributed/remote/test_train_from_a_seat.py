"""Training from the seat of one agent; what kaggle-environments does is compared in test_kaggle_replays."""

from __future__ import annotations

import os

import pytest
from nim import Nim

from parllel.distributed.remote import Agent, make, register
from parllel.errors import WrongStateError
from parllel.system.processes.process_table import descendants

RPS = {"episodeSteps": 3, "tieRewardThreshold": 1}


@pytest.mark.parametrize("agents", [["rock", "rock"], [None, None]])
def test_exactly_one_agent_is_trained(agents):
    with make("rps") as env, pytest.raises(ValueError, match="expected None for exactly one agent"):
        env.train(agents)


def test_the_number_of_agents_is_checked():
    with make("rps") as env, pytest.raises(ValueError, match="rps: expected 2 agents, got 3"):
        env.train([None, "rock", "rock"])


def test_steps_outside_of_an_episode_are_refused():
    with make("rps", RPS) as env:
        trainer = env.train([None, "rock"])
        with pytest.raises(WrongStateError, match="call reset"):
            trainer.step(1)
        trainer.reset()
        assert [trainer.step(1)[2] for _ in range(2)] == [False, True]
        with pytest.raises(WrongStateError, match="call reset"):
            trainer.step(1)
        assert trainer.reset().step == 0


def test_a_failure_says_why():
    with make("connectx") as env:
        trainer = env.train([None, "negamax"])
        trainer.reset()
        _, reward, done, info = trainer.step(99)
        assert (reward, done) == (None, True)
        assert "99" in info["reason"]


def test_the_episode_is_that_of_the_environment():
    with make("rps", RPS) as env:
        trainer = env.train(["rock", None])
        trainer.reset()
        trainer.step(1)
        trainer.step(2)
        assert [[s["action"] for s in row] for row in env.toJSON()["steps"][1:]] == [[0, 1], [0, 2]]
        assert env.toJSON() == env.to_json()


def test_agents_are_made_anew_for_each_episode_and_end(tmp_path):
    (tmp_path / "agent.py").write_text(
        "acts = []\n\ndef agent(observation):\n    acts.append(1)\n    return len(acts) - 1\n"
    )
    with make("rps", RPS) as env:
        trainer = env.train([str(tmp_path / "agent.py"), None])
        for _ in range(2):
            trainer.reset()
            # It counts from 0 again.
            assert [trainer.step(0)[0].lastOpponentAction for _ in range(2)] == [0, 1]
        before = {entry.pid for entry in descendants(os.getpid())}
        trainer.close()
        assert len({entry.pid for entry in descendants(os.getpid())}) < len(before)
        given = Agent("rock", env)
        env.train([given, None]).reset()
    given.act({"step": 0})  # which is its owner's to close
    given.close()


def test_its_part_may_be_over_before_the_game_is():
    register("nim-to-train", Nim)
    with make("nim-to-train", {"sticks": 9}) as env:
        trainer = env.train(["one", None, "one"])
        # The first has taken one.
        assert trainer.reset()["sticks"] == 8
        observation, reward, done, _ = trainer.step(2)
        assert (observation["sticks"], reward, done) == (4, 0, False)
        _, reward, done, info = trainer.step("none")
        assert (reward, done, bool(info["reason"])) == (None, True, True)
