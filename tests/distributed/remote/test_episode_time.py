from __future__ import annotations

import threading
import time

import nim  # noqa: F401 - registers the game
import pytest
from playing import played

from parllel.distributed.remote import AgentFailure, make


def test_time_beyond_act_timeout_is_taken_from_what_an_agent_has_left():
    with make("rps", {"actTimeout": 2, "agentTimeout": 10}) as env:
        assert [s["observation"]["remainingOverageTime"] for s in env.state] == [10, 10]
        env.step([0, 0], [{"duration": 5.5}, {"duration": 1.5}])
        row = env.step([0, 0], [{"duration": 2.25}, {"duration": 2.0}])
    left = [s["observation"]["remainingOverageTime"] for s in env.steps[1]]
    assert left == [6.5, 10]
    assert [s["observation"]["remainingOverageTime"] for s in row] == [6.25, 10]


def test_one_who_takes_all_of_its_time_is_out_and_the_other_wins():
    def slow(observation):
        time.sleep(0.3)
        return 0

    with make("rps", {"actTimeout": 0.1, "agentTimeout": 0.1, "episodeSteps": 5}) as env:
        steps = env.run([slow, "rock"])
    assert played(steps)[1] == [(None, None, "TIMEOUT"), (0, 1, "DONE")]
    assert "no action within 0.2 s" in steps[1][0]["info"]["reason"]
    assert env.logs[1][0]["duration"] >= 0.3


def test_agents_of_one_step_act_at_the_same_time():
    # Each waits for the other, which would never come if they acted one after the other.
    meeting = threading.Barrier(2, timeout=30)

    def meets(observation):
        meeting.wait()
        return observation["step"] % 3

    with make("rps", {"episodeSteps": 4, "actTimeout": 40}) as env:
        steps = env.run([meets, meets])
    assert [state["status"] for state in steps[-1]] == ["DONE", "DONE"]


def test_what_agents_print_is_kept_apart_and_cut():
    def says(word):
        def act(observation):
            print(word * 30)
            return 0

        return act

    with make("rps", {"episodeSteps": 3, "maxLogLength": 50}) as env:
        env.run([says("left "), says("right ")])
    assert env.logs[0] == []
    for row in env.logs[1:]:
        assert [log["stdout"][:12] for log in row] == ["left left le", "right right "]
        assert [len(log["stdout"]) for log in row] == [50, 50]


def test_an_agent_that_does_not_act_has_an_empty_log():
    with make("connectx") as env:
        env.step([3, None], [{"duration": 0.1, "stdout": "hm", "stderr": ""}, {}])
        assert env.logs[1] == [{"duration": 0.1, "stdout": "hm", "stderr": ""}, {}]


def test_agents_that_cannot_be_made_end_those_before_them(tmp_path):
    fine = tmp_path / "fine.py"
    fine.write_text("def agent(observation):\n    return 0\n")
    with make("rps") as env, pytest.raises(FileNotFoundError, match=r"missing\.py"):
        env.run([str(fine), str(tmp_path / "missing.py")])
    # The leak guard would find the process of the first.


def test_the_runner_asks_those_that_are_active():
    asked = []

    def asks(observation):
        asked.append(observation["mark"])
        return 0

    with make("connectx") as env:
        agents = env.initialize_agents([asks, asks])
        with env.runner(agents) as runner:
            actions, logs = runner.act()
            assert actions == [0, None]
            assert logs[1] == {}
            env.step(actions, logs)
            actions, logs = runner.act()
            assert actions == [None, 0]
    assert asked == [1, 2]


def test_an_agent_may_return_a_failure():
    with make("connectx") as env:
        steps = env.run([lambda observation: AgentFailure("TIMEOUT", "its own clock"), None])
    assert played(steps)[-1] == [(None, None, "TIMEOUT"), (0, 0, "DONE")]
