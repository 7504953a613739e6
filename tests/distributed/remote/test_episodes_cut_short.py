"""An episode that runTimeout stops has no result, wherever its result would be read."""

from __future__ import annotations

import json
import time

import pytest
from asking import post
from serving import served_here

from parllel.cli import main
from parllel.distributed.remote import AgentFailure, evaluate, make
from parllel.distributed.remote.server.permissions import Permissions

SLOW = """
import time

def agent(observation):
    time.sleep(0.2)
    return 0
"""
# The first episode takes a second at least, and so do others.
CUT = {"runTimeout": 0.5, "tieRewardThreshold": 1}
STOPPED = "by runTimeout, after 0.5 s"
NONE = [None, None]


def slow(observation):
    time.sleep(0.2)
    return 0


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "slow.py"
    file.write_text(SLOW)
    return file


def test_evaluate_has_no_rewards_of_it():
    assert evaluate("rps", [slow, "paper"], CUT, episodes=2) == [NONE, NONE]
    found = evaluate("rps", [slow, "paper"], CUT, statuses=True)
    assert found == [{"rewards": NONE, "statuses": ["ACTIVE", "ACTIVE"], "stopped": STOPPED}]


def test_other_episodes_keep_their_rewards():
    def sometimes(observation):
        if len(ended) == 1:
            time.sleep(0.2)
        return 0

    ended = []
    configuration = {"runTimeout": 1, "tieRewardThreshold": 1, "episodeSteps": 20}
    found = evaluate(
        *("rps", [sometimes, "paper"], configuration),
        episodes=3,
        statuses=True,
        on_episode=lambda env: ended.append("stopped" in env.info),
    )
    assert ended == [False, True, False]
    assert [one["rewards"] for one in found] == [[-19, 19], NONE, [-19, 19]]
    assert list(found[0]) == ["rewards", "statuses"]


def test_a_replay_has_no_rewards_of_it_and_every_rendering_says_so():
    with make("rps", CUT) as env:
        env.run([slow, "paper"])
        replay = json.loads(env.render("json"))
        assert not env.done
        assert (replay["rewards"], replay["statuses"]) == (NONE, ["ACTIVE", "ACTIVE"])
        assert replay["info"]["stopped"] == STOPPED
        assert replay["steps"][-1][1]["reward"] > 0  # so far
        assert env.render("ansi").endswith(f"stopped {STOPPED}\n")
        assert f"stopped {STOPPED}" in env.render("html")
        # It goes on, and has a result then.
        env.configuration.update(runTimeout=60, episodeSteps=len(env.steps) + 2)
        env.run(["rock", "paper"])
        replay = json.loads(env.render("json"))
        assert (None in replay["rewards"], replay["statuses"]) == (False, ["DONE", "DONE"])
        assert "stopped" not in env.render("ansi")


@pytest.mark.parametrize("where", ["here", "in a process", "behind a url"])
def test_time_of_an_agent_that_the_episode_lacks_is_no_failure_of_the_agent(file, where):
    """It has an hour of overage left when the episode is stopped: it has not lost."""
    file.write_text(SLOW.replace("0.2", "3"))
    configuration = {**CUT, "actTimeout": 0.1, "agentTimeout": 3600}
    with served_here(agent=file) as url, make("rps", configuration) as env:
        agent = {"here": lambda o: time.sleep(1), "in a process": file, "behind a url": url}
        steps = env.run([agent[where], "rock"])
        assert [state["status"] for state in steps[-1]] == ["ACTIVE", "ACTIVE"]
        assert env.info["stopped"] == STOPPED
        assert len(steps) == 1
        assert evaluate("rps", [agent[where], "rock"], configuration) == [NONE]


def test_an_agent_that_has_used_up_its_time_has_lost():
    with make("rps", {"runTimeout": 60, "actTimeout": 0.05, "agentTimeout": 0.05}) as env:
        env.run([slow, "rock"])
        assert [state["status"] for state in env.state] == ["TIMEOUT", "DONE"]
        assert "stopped" not in env.info
    with make("rps", {**CUT, "agentTimeout": 3600}) as env:
        # Its own clock: the time of the episode is not over.
        env.run([lambda observation: AgentFailure("TIMEOUT", "mine"), "rock"])
        assert [state["status"] for state in env.state] == ["TIMEOUT", "DONE"]
        assert "stopped" not in env.info


# ---------------------------------------------------------------------- commands


def test_run_writes_it_says_so_and_fails(printed, file, tmp_path):
    told = ("--environment", "rps", "--configuration", json.dumps(CUT), "--agents", file, "paper")
    status, out, err = printed("run", *told)
    replay = json.loads(out)
    assert status == 1
    assert (replay["rewards"], replay["info"]["stopped"]) == (NONE, STOPPED)
    assert err == f"parllel remote run: the episode was stopped {STOPPED}: it has no result\n"
    out = tmp_path / "out.json"
    assert printed("run", *told, "--out", out) == (1, "", err)
    assert json.loads(out.read_text())["rewards"] == NONE
    # A replay is shown as it is.
    status, shown, err = printed("load", "--in", out, "--render", "ansi")
    assert (status, err) == (0, "")
    assert shown.endswith(f"stopped {STOPPED}\n")


def test_evaluate_writes_nulls_says_so_and_fails(printed, file):
    told = ("--environment", "rps", "--configuration", json.dumps(CUT), "--agents", file, "paper")
    status, out, err = printed("evaluate", *told, "--episodes", 2)
    assert (status, json.loads(out)) == (1, [NONE, NONE])
    said = (
        f"parllel remote evaluate: 2 of 2 episodes were stopped {STOPPED}: their rewards are null\n"
    )
    assert err == said
    status, out, _ = printed("evaluate", *told, "--statuses")
    assert status == 1
    assert json.loads(out)[0]["stopped"] == STOPPED


GAME = """
from parllel.distributed.remote import register
from parllel.distributed.remote.games.rps import RockPaperScissors

class Breaks(RockPaperScissors):
    def step(self, position):
        if position.step == 2:
            raise RuntimeError("the board fell down")
        super().step(position)

register("breaks", Breaks)
"""


@pytest.fixture
def breaks(tmp_path, monkeypatch):
    name = f"game_that_breaks_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(GAME)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize("command", ["run", "evaluate"])
def test_an_error_of_the_game_is_no_result(capsys, breaks, command, tmp_path):
    out = tmp_path / "out.json"
    told = ("--import", breaks, "--environment", "breaks", "--agents", "rock", "paper")
    with pytest.raises(RuntimeError, match="the board fell down"):
        main(["remote", command, *told, "--out", str(out)])
    assert (capsys.readouterr().out, out.exists()) == ("", False)
    with served_here() as url:
        reply = post(url, {"action": command, "environment": "breaks", "agents": ["rock", "paper"]})
        assert reply.status == 400
        assert "the board fell down" in reply.json()["error"]


# ---------------------------------------------------------------------- servers


def test_the_server_says_so(file, tmp_path):
    request = {"environment": "rps", "agents": [file.name, "paper"], "configuration": CUT}
    with served_here(Permissions(tmp_path)) as url:
        ran = post(url, {**request, "action": "run"}).json()
        assert (ran["rewards"], ran["info"]["stopped"]) == (NONE, STOPPED)
        text = post(url, {**request, "action": "run", "render": {"mode": "ansi"}})
        assert text.body.decode().endswith(f"stopped {STOPPED}\n")
        evaluated = post(url, {**request, "action": "evaluate", "episodes": 2})
        assert evaluated.json() == [NONE, NONE]
        (one,) = post(url, {**request, "action": "evaluate", "statuses": True}).json()
        assert (one["rewards"], one["stopped"]) == (NONE, STOPPED)
