from __future__ import annotations

import json
import os
import threading
import time

import pytest
from answering import Answering, reply
from waiting import until

from parllel.distributed.remote import UrlAgent, make
from parllel.distributed.remote.server import Actions
from parllel.distributed.remote.server.permissions import Permissions
from parllel.distributed.web import WebError
from parllel.system.processes.process_table import descendants

NOT_INITIALIZED = {"error": "No agent initialized. Call initialize_agents first."}


def act(step=0, **fields):
    """Return a request to act in rps."""
    observation = {"step": step, "remainingOverageTime": 60}
    return {
        "action": "act",
        "environment": "rps",
        "state": {"observation": observation},
        **fields,
    }


def initialize(agent, **fields):
    """Return a request that initialises an agent for rps."""
    return {"action": "initialize_agents", "environment": "rps", "agents": [agent], **fields}


def test_environments_are_listed(actions):
    names = actions.handle({"action": "list"})
    assert names == sorted(names)
    assert {"rps", "connectx"} <= set(names)


def test_an_agent_acts_after_it_was_initialised_and_until_it_is_disposed_of(actions):
    assert actions.handle(act()) == NOT_INITIALIZED
    reply = actions.handle(initialize("by_step.py"))
    assert reply == {"status": "initialized", "agent": "by_step.py"}
    assert [actions.handle(act(step)) for step in (0, 1, 5)] == [
        {"action": 0},
        {"action": 1},
        {"action": 2},
    ]
    assert actions.handle({"action": "dispose"}) == "Successfully disposed"
    assert actions.handle({"action": "dispose"}) == "Already disposed"
    assert actions.handle(act()) == NOT_INITIALIZED


@pytest.mark.parametrize(
    ("agent", "action"), [("rock", 0), ("scissors", 2), (1, 1), ([2], [2]), ({"x": 1}, {"x": 1})]
)
def test_built_in_agents_and_constants_need_no_permission(agent, action):
    with Actions() as actions:
        actions.handle(initialize(agent))
        assert actions.handle(act()) == {"action": action}


def test_an_act_with_agents_loads_the_agent_and_keeps_it(actions):
    assert actions.handle(act(2, agents=["by_step.py"])) == {"action": 2}
    assert actions.handle(act(1)) == {"action": 1}
    assert actions.handle(act(1, agents=["rock"])) == {"action": 0}
    assert actions.handle(act(1)) == {"action": 0}


def test_an_agent_acts_with_the_configuration_of_the_request(actions):
    actions.handle(initialize("configured.py", configuration={"episodeSteps": 7}))
    assert actions.handle(act()) == {"action": 7}
    assert actions.handle(act(configuration={"episodeSteps": 9})) == {"action": 9}
    with pytest.raises(WebError, match="episodeSteps"):
        actions.handle(act(configuration={"episodeSteps": "nine"}))


def test_an_agent_is_for_one_environment(actions):
    actions.handle(initialize("rock"))
    with pytest.raises(WebError, match="the agent was initialised for 'rps'"):
        actions.handle({**act(), "environment": "connectx"})


def test_failures_are_told_apart(actions):
    actions.handle(initialize("failing.py"))
    reply = actions.handle(act())
    assert reply["action"].startswith("BaseException::")
    assert "no idea" in reply["action"]
    assert reply["status"] == "ERROR"
    actions.handle(initialize("sleeping.py", configuration={"actTimeout": 0.1}))
    request = act()
    request["state"]["observation"]["remainingOverageTime"] = 0
    reply = actions.handle(request)
    assert (reply["action"], reply["status"]) == ("DeadlineExceeded", "TIMEOUT")


def test_a_batch_is_answered_in_one_request(actions):
    actions.handle(initialize("by_step.py"))
    request = {"action": "act", "observations": [{"step": step} for step in range(5)]}
    assert actions.handle(request) == {"actions": [0, 1, 2, 0, 1]}
    assert actions.handle({"action": "act", "observations": []})["actions"] == []
    actions.handle(initialize("failing.py"))
    reply = actions.handle({"action": "act", "observations": [{}, {}]})
    assert [action.partition("::")[0] for action in reply["actions"]] == ["BaseException"] * 2
    assert reply["failures"]["1"]["status"] == "ERROR"


def test_an_episode_is_run_and_returned_as_a_replay(actions):
    request = {
        "action": "run",
        "environment": "rps",
        "agents": ["by_step.py", "rock"],
        "configuration": {"episodeSteps": 4},
        "info": {"TeamNames": ["a", "b"]},
    }
    episode = json.loads(actions.handle(request))
    assert [[state["action"] for state in row] for row in episode["steps"][1:]] == [
        [0, 0],
        [1, 0],
        [2, 0],
    ]
    assert episode["statuses"] == ["DONE", "DONE"]
    assert episode["info"]["TeamNames"] == ["a", "b"]
    fields = {"configuration", "specification", "steps", "rewards", "statuses", "info", "id"}
    assert fields <= episode.keys()
    assert episode["version"] == "1.0.0"

    loaded = {"action": "load", "environment": "rps", "steps": episode["steps"]}
    loaded["configuration"] = episode["configuration"]
    assert json.loads(actions.handle(loaded))["steps"] == episode["steps"]
    text = actions.handle({**loaded, "render": {"mode": "ansi"}})
    assert text
    assert not text.startswith("{")
    assert actions.handle({**loaded, "render": {"mode": "html"}}).startswith("<!DOCTYPE html>")


def test_episodes_are_evaluated(actions):
    request = {
        "action": "evaluate",
        "environment": "rps",
        "agents": ["failing.py", "rock"],
        "configuration": {"episodeSteps": 4},
        "episodes": 2,
    }
    rewards = actions.handle(request)
    assert [one[0] for one in rewards] == [None, None]
    both = actions.handle({**request, "statuses": True})
    assert [one["statuses"][0] for one in both] == ["ERROR", "ERROR"]
    assert [one["rewards"] for one in both] == rewards


def test_one_step_is_made_by_actions_or_by_agents(actions):
    request = {"action": "step", "environment": "rps", "configuration": {"episodeSteps": 10}}
    state = actions.handle({**request, "actions": [1, 0]})
    assert [one["action"] for one in state] == [1, 0]
    again = actions.handle({**request, "state": state, "agents": ["paper", "by_step.py"]})
    assert [one["action"] for one in again] == [1, 1]
    assert again[0]["observation"]["step"] == 2


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "action: expected one of act, dispose"),
        ({"action": "handle"}, "action: expected one of act, dispose"),
        ({"action": ["act"]}, "action: expected one of act, dispose"),
        ({"action": "run"}, "environment: expected a name"),
        ({"action": "run", "environment": "chess"}, "chess"),
        (
            {"action": "run", "environment": "gymnasium/broken.py:make"},
            "expected a registered name, not a module",
        ),
        (
            initialize("rock", environment="gymnasium/a:CartPole-v1"),
            "expected a registered name, not a module",
        ),
        (initialize("rock", agents=[]), "exactly one agent"),
        (initialize("rock", agents=["rock", "paper"]), "exactly one agent"),
        (initialize(None), "expected an agent, got null"),
        (initialize("rock", configuration=[1]), "configuration: expected an object"),
        (initialize("rock", session="../x"), "session: expected 1 to 64"),
        (initialize("broken.py"), "broken.py"),
        (initialize("nowhere.py"), "there is no file nowhere.py below --agent-root"),
        (act(agents=["rock"], state=[]), "state: expected an object"),
        (act(agents=["rock"], observations=[1]), r"observations\[0\]: expected an object"),
        ({"action": "run", "environment": "rps", "agents": ["rock"]}, "agents"),
        ({"action": "evaluate", "environment": "rps", "agents": [], "episodes": 0}, "episodes"),
        ({"action": "load", "environment": "rps", "steps": [[1, 2]]}, "steps"),
        (
            {"action": "load", "environment": "rps", "configuration": {"episodeSteps": 100_001}},
            "episodeSteps: 100001 is greater than the maximum",
        ),
        ({"action": "load", "environment": "rps", "render": {"mode": "png"}}, "render.mode"),
        ({"action": "step", "environment": "rps", "actions": [1]}, "2 actions"),
    ],
)
def test_mistakes_are_refused_in_one_line(actions, request_, message):
    with pytest.raises(WebError, match=message) as raised:
        actions.handle(request_)
    assert 400 <= raised.value.status < 500
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("action", ["run", "evaluate"])
def test_episodes_are_played_by_a_bounded_number_of_requests(agents, action):
    (agents / "slow.py").write_text(
        "import time\n\ndef agent(o):\n    time.sleep(0.4)\n    return 1\n"
    )
    slow = {"environment": "rps", "agents": ["slow.py", "rock"]}
    slow["configuration"] = {"episodeSteps": 3}
    quick = {"action": "load", "environment": "rps"}
    with Actions(Permissions(agents), episodes=1) as actions:

        def play():
            until(lambda: _accepted(actions, {"action": action, **slow}))

        playing = threading.Thread(target=play)
        playing.start()
        refused = None
        while refused is None and playing.is_alive():
            time.sleep(0.05)  # or there would never be room for the slow one
            try:
                actions.handle(quick)
            except WebError as error:
                refused = error
        playing.join()
        assert refused is not None
        assert refused.status == 503
        assert "other episodes are being played" in str(refused)
        actions.handle(quick)


def test_the_end_of_a_server_ends_an_episode_whose_agent_hangs(agents):
    request = {"action": "run", "environment": "rps", "agents": ["sleeping.py", "rock"]}
    request["configuration"] = {"actTimeout": 600}
    with Actions(Permissions(agents)) as actions:
        playing = threading.Thread(target=lambda: ended.append(_refusal(actions, request)))
        ended, before = [], len(descendants(os.getpid()))
        playing.start()
        until(lambda: len(descendants(os.getpid())) > before)
    playing.join(30)
    assert [error.status for error in ended] == [503]


def _accepted(actions, request):
    """Do what is asked for; return False if there is no room for it."""
    try:
        actions.handle(request)
    except WebError as error:
        if error.status != 503:
            raise
        return False
    return True


def _refusal(actions, request):
    with pytest.raises(WebError) as raised:
        actions.handle(request)
    return raised.value


PRINTING = (
    "import sys\n\n"
    "def agent(observation):\n"
    "    print('out', observation.step)\n"
    "    print('error', file=sys.stderr)\n"
    "    return abs(1 // (observation.step - 1))\n"
)


@pytest.mark.parametrize("by", ["json", "protobuf"])
@pytest.mark.parametrize("logs", [True, False])
def test_what_agents_print_comes_back_where_that_is_allowed(agents, serve, logs, by):
    (agents / "printing.py").write_text(PRINTING)
    url = serve(Permissions(agents), logs=logs)
    with UrlAgent(url, "rps") as asked:
        asked.initialize(["printing.py"])
    raw = url if by == "json" else {"type": "proto", "url": url}
    with make("rps", {"episodeSteps": 4}) as env:
        env.run([raw, "rock"])
        first, second = (row[0] for row in env.logs[1:3])
    assert first["stdout"] == ("out 0\n" if logs else "")
    assert first["stderr"] == ("error\n" if logs else "")
    assert second["stdout"] == ("out 1\n" if logs else "")
    traceback = second["stderr"]
    assert ("ZeroDivisionError" in traceback, "return abs(1" in traceback) == (logs, logs)


@pytest.mark.parametrize("logs", [True, False])
def test_batches_and_episodes_have_logs_where_that_is_allowed(agents, logs):
    (agents / "printing.py").write_text(PRINTING)
    with Actions(Permissions(agents), logs=logs) as actions:
        made = {"environment": "rps", "agents": ["printing.py"]}
        actions.handle({"action": "initialize_agents", **made})
        acted = actions.handle({"action": "act", "observations": [{"step": 0}, {"step": 3}]})
        assert acted["actions"] == [1, 0]
        assert ("log" in acted) == logs
        if logs:
            assert acted["log"]["stdout"] == "out 0\nout 3\n"
        played = json.loads(
            actions.handle(
                {"action": "run", "environment": "rps", "agents": ["printing.py", "rock"]}
            )
        )
    assert ("logs" in played) == logs
    if logs:
        assert played["logs"][1][0]["stdout"] == "out 0\n"


def test_a_log_that_is_none_is_no_error():
    for log in (3, None, {"stdout": 3}, {"stderr": ["x"]}):
        answer = json.dumps({"action": 2, "log": log}).encode()
        with (
            Answering(lambda body, answer=answer: reply(answer.decode())) as server,
            make("rps", {"episodeSteps": 2}) as env,
        ):
            env.run([server.url, "rock"])
            assert env.steps[-1][0]["action"] == 2
            assert (env.logs[-1][0]["stdout"], env.logs[-1][0]["stderr"]) == ("", "")
