from __future__ import annotations

import json
import subprocess
import sys

import pytest

from parllel.distributed.web import ServerSettings

EPISODE = ("--environment", "rps", "--configuration", '{"episodeSteps": 4}')
USER_MODULE = """
from parllel.distributed.remote import register
from parllel.distributed.remote.games.rps import RockPaperScissors

register("my-rps", RockPaperScissors)
"""


def test_run_prints_the_episode_alone(printed, agents):
    status, out, err = printed("run", *EPISODE, "--agents", agents / "by_step.py", "rock")
    episode = json.loads(out)
    assert (status, err, out.count("\n")) == (0, "", 1)
    assert [row[0]["action"] for row in episode["steps"]] == [0, 0, 1, 2]
    assert episode["statuses"] == ["DONE", "DONE"]


def test_run_writes_the_episode_and_the_logs_into_files(printed, agents, tmp_path):
    (agents / "talking.py").write_text("def agent(o):\n    print('step', o.step)\n    return 1\n")
    out, log = tmp_path / "out.json", tmp_path / "log.json"
    told = ("--agents", agents / "talking.py", "rock", "--out", out, "--log", log)
    assert printed("run", *EPISODE, *told) == (0, "", "")
    logs = json.loads(log.read_text())
    assert [step[0]["stdout"] for step in logs if step] == ["step 0\n", "step 1\n", "step 2\n"]
    assert set(logs[-1][0]) == {"duration", "stdout", "stderr"}
    assert len(json.loads(out.read_text())["steps"]) == 4


def test_the_exit_status_says_that_an_agent_failed(printed, agents):
    status, out, _ = printed("run", *EPISODE, "--agents", agents / "failing.py", "rock")
    assert status == 1
    assert json.loads(out)["statuses"][0] == "ERROR"
    told = ("--agents", agents / "failing.py", "rock", "--episodes", 2)
    status, out, _ = printed("evaluate", *EPISODE, *told)
    assert status == 1
    assert [rewards[0] for rewards in json.loads(out)] == [None, None]


def test_constants_and_missing_agents_are_written_as_json(printed):
    status, out, _ = printed("run", *EPISODE, "--agents", "2", "null")
    assert status == 0
    assert [one["action"] for one in json.loads(out)["steps"][-1]] == [2, 0]


def test_evaluate_prints_rewards(printed):
    told = ("--agents", "rock", "paper", "--configuration", '{"tieRewardThreshold": 1}')
    status, out, err = printed("evaluate", "--environment", "rps", *told, "--episodes", 2)
    assert (status, json.loads(out), err) == (0, [[-999.0, 999.0], [-999.0, 999.0]], "")
    told = ("--agents", "rock", "paper", "--statuses")
    _, out, _ = printed("evaluate", *EPISODE, *told)
    assert json.loads(out)[0]["statuses"] == ["DONE", "DONE"]


def test_an_episode_is_loaded_and_shown(printed, tmp_path):
    replay = tmp_path / "replay.json"
    printed("run", *EPISODE, "--agents", "rock", "paper", "--out", replay)
    status, out, _ = printed("load", "--in", replay)
    assert status == 0
    assert json.loads(out)["steps"] == json.loads(replay.read_text())["steps"]
    status, out, _ = printed("load", "--in", replay, "--render", "ansi")
    assert status == 0
    assert out.strip()
    assert not out.startswith("{")
    page = tmp_path / "page.html"
    assert printed("load", "--in", replay, "--render", '{"mode": "html"}', "--out", page)[0] == 0
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_what_a_replay_names_is_not_imported(printed, tmp_path):
    replay = tmp_path / "replay.json"
    replay.write_text(json.dumps({"name": "gymnasium/antigravity:CartPole-v1"}))
    status, _, err = printed("load", "--in", replay)
    assert status == 2
    assert "expected a registered name, not a module or file" in err
    assert "antigravity" not in sys.modules


def test_an_episode_is_stepped(printed, tmp_path):
    status, out, _ = printed("step", *EPISODE, "--actions", "[1, 0]")
    assert status == 0
    assert [one["action"] for one in json.loads(out)] == [1, 0]
    state = json.dumps(json.loads(out))
    status, out, _ = printed("step", *EPISODE, "--state", state, "--agents", "rock", "scissors")
    assert [one["action"] for one in json.loads(out)] == [0, 2]


def test_environments_are_listed_with_those_of_a_module(printed, tmp_path):
    module = tmp_path / "games_of_mine.py"
    module.write_text(USER_MODULE)
    status, out, _ = printed("list")
    assert status == 0
    assert {"rps", "connectx"} <= set(json.loads(out))
    assert "my-rps" not in out
    command = [sys.executable, "-m", "parllel", "remote", "list", "--import", str(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50)
    assert "my-rps" in json.loads(done.stdout)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("run", "--environment", "chess", "--agents", "rock"), "chess"),
        (("run", *EPISODE, "--agents", "rock"), "agents"),
        (("run", *EPISODE, "--agents", "rock", "nowhere.py"), "nowhere.py"),
        (("run", *EPISODE, "--agents", "rock", "[1"), "--agents: expected JSON, got '[1'"),
        (("run", "--environment", "rps", "--configuration", "[]"), "--configuration: expected an"),
        (("run", *EPISODE, "--render", "png"), "--render: expected json, ansi or html"),
        (("run", *EPISODE, "--debug", "maybe"), "--debug: expected true or false"),
        (("evaluate", *EPISODE, "--episodes", "0"), "--episodes: expected at least 1"),
        (("load",), "expected --environment NAME, or --in FILE"),
        (("load", "--in", "nowhere.json"), "nowhere.json"),
        (("step", *EPISODE, "--actions", "3"), "--actions: expected an array"),
        (("list", "--import", "nowhere_at_all"), "nowhere_at_all"),
    ],
)
def test_mistakes_are_one_sentence_on_stderr(printed, argv, message):
    status, out, err = printed(*argv)
    assert (status, out) == (2, "")
    assert err.startswith("parllel: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_token_of_a_file_reaches_the_server(printed, serve, tmp_path):
    token = "a-token-of-this-test"
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    url = serve(settings=ServerSettings(token=token))
    told = ("--agents", url, "rock")
    status, out, err = printed("run", *EPISODE, *told)
    assert status == 1
    status, out, err = printed("run", *EPISODE, *told, "--token-file", tmp_path / "token")
    # The token is right: there is no agent, which another error says.
    assert status == 1
    assert "No agent initialized" in out
    assert token not in out + err
