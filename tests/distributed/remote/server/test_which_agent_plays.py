"""The agent that a request names plays, wherever it names it, or the request is refused."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from asking import post
from foreign_protobuf import request, value_of_response
from serving import http_server, served_here
from test_with_kaggle_environments import ours, theirs  # noqa: F401 - a fixture

from parllel.distributed.remote import UrlAgent, make
from parllel.distributed.remote.server.permissions import Permissions

OBSERVATION = {"step": 1, "remainingOverageTime": 60, "lastOpponentAction": 0}
ACT = {"action": "act", "environment": "rps", "state": {"observation": OBSERVATION}}
INITIALIZE = {"action": "initialize_agents", "environment": "rps", "agents": ["rock"]}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
COUNTS = "n = 0\n\ndef agent(observation):\n    global n\n    n += 1\n    return n\n"


@pytest.fixture
def url(serve, agents):
    """A server whose agent is `rock`, and which may load others."""
    (agents / "counts.py").write_text(COUNTS)
    url = serve(Permissions(agents))
    assert post(url, INITIALIZE).status == 200
    return url


def action(url, query="", **fields):
    reply = post(f"{url}/{query}", {**ACT, **fields})
    assert reply.status == 200, reply.body
    return reply.json()["action"]


def refusal(url, query="", *, headers=None, status=400, **fields):
    reply = post(f"{url}/{query}", {**ACT, **fields}, headers=headers)
    assert reply.status == status, reply.body
    return reply.json()["error"]


def test_the_agent_of_the_query_plays(url):
    assert action(url) == 0
    assert action(url, "?agents[]=scissors") == 2
    assert action(url, "?agents%5B%5D=by_step.py") == 1
    assert action(url, "?agents[]=by_step.py", agents=["by_step.py"]) == 1
    # It is the one of later requests too, as that of an `act` which names it in its body.
    assert action(url) == 1


def test_the_same_agent_goes_on(url):
    assert [action(url, "?agents[]=counts.py") for _ in range(3)] == [1, 2, 3]
    assert action(url, "?agents[]=rock") == 0
    assert action(url, "?agents[]=counts.py") == 1


@pytest.mark.parametrize(
    ("query", "fields", "said"),
    [
        ("?agents[]=scissors", {"agents": ["paper"]}, "agents[] of the query"),
        ("?agents[]=scissors&agents[]=paper", {}, "occurs twice"),
        ("?agents=scissors", {}, "query: agents: expected no field except agents[]"),
        ("?session=one", {}, "query: session: expected no field except agents[]"),
        ("?environment=connectx", {}, "query: environment: expected"),
        ("?action=dispose", {}, "query: action: expected"),
        ("?agents[0]=scissors", {}, "query: agents[0]: expected"),
        ("?" + quote("ägents") + "=1", {}, "query: "),
        ("", {"agents": []}, "agents: expected a list with exactly one agent"),
        ("", {"agents": ""}, "agents: expected a list with exactly one agent"),
        ("", {"agents": False}, "agents: expected"),
        ("", {"agents": ["paper", "paper"]}, "agents: expected a list with exactly one agent"),
    ],
)
def test_what_names_no_agent_is_refused_and_changes_nothing(url, query, fields, said):
    assert said in refusal(url, query, **fields)
    assert action(url) == 0


def test_the_query_needs_the_permissions_of_the_body(serve, agents):
    url = serve()
    assert "--agent-root" in refusal(url, "?agents[]=by_step.py", status=403)
    assert "--allow-url" in refusal(url, "?agents[]=http://127.0.0.1:9", status=403)
    source = quote("def agent(observation):\n    return 1\n")
    assert "--allow-source" in refusal(url, f"?agents[]={source}", status=403)
    allowed = serve(Permissions(agents))
    refusal(allowed, "?agents[]=missing.py", status=404)
    refusal(allowed, "?agents[]=../x.py", status=403)
    refusal(allowed, "?agents[]=")


def test_protobuf_names_no_environment_and_so_no_agent(url):
    body = request("process_turn", OBSERVATION, {})
    reply = post(f"{url}/?agents[]=scissors", body=body, headers=PROTOBUF)
    assert reply.status == 400
    assert "agents[]" in value_of_response(reply.body)["error"]
    reply = post(f"{url}/?session=one", body=body, headers=PROTOBUF)
    assert reply.status == 400
    assert "query: session" in value_of_response(reply.body)["error"]
    reply = post(url, body=body, headers=PROTOBUF)
    assert value_of_response(reply.body) == {"action": 0}


def test_two_sessions_in_one_request_are_refused(url):
    header = {"Parllel-Session": "two"}
    assert "session" in refusal(url, headers=header, session="one")
    post(url, {**INITIALIZE, "agents": ["paper"], "session": "two"})
    assert post(url, {**ACT, "session": "two"}, headers=header).json() == {"action": 1}


def test_actions_of_another_type_are_another_agent(serve):
    url = serve()
    for constant in (1, True, 1.0, [1], [True]):
        assert json.dumps(action(url, agents=[constant])) == json.dumps(constant)


def test_the_agent_of_the_start_is_not_a_file_of_the_same_name(agents, tmp_path, monkeypatch):
    """`--agent agent.py` is a path of the server's, `"agents": ["agent.py"]` one below --agent-root."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text("def agent(observation):\n    return 0\n")
    (agents / "agent.py").write_text("def agent(observation):\n    return 2\n")
    with served_here(Permissions(agents), agent="agent.py") as url:
        assert action(url) == 0
        assert action(url, agents=["agent.py"]) == 2


def test_our_clients_play_the_agent_of_their_urls(url):
    with UrlAgent(f"{url}/?agents[]=scissors", "rps") as agent:
        assert agent(OBSERVATION, {}) == 2
    with make("rps", {"episodeSteps": 3, "tieRewardThreshold": 1, "actTimeout": 20}) as env:
        env.run([f"{url}/?agents[]=paper", "rock"])
        assert [state["reward"] for state in env.state] == [2, -2]


def test_their_client_plays_the_agent_of_its_url_on_our_server(theirs, agents):  # noqa: F811
    """Both packages' clients, with the same URL, and the agents at hand."""
    configuration = {"episodeSteps": 8, "tieRewardThreshold": 1}
    (agents / "counting.py").write_text(COUNTS.replace("return n", "return n % 3"))
    with http_server("--agent-root", agents) as our_url:
        request = {**INITIALIZE, "agents": ["paper"]}
        assert post(our_url, request).status == 200
        players = [str(agents / "counting.py"), f"{our_url}/?agents[]=counting.py"]
        (at_hand, behind) = theirs([("rps", configuration, [one, "rock"]) for one in players])
        assert behind == at_hand
        # The agent remembers, so it is made anew for the next episode.
        assert post(our_url, {"action": "dispose"}).status == 200
        assert ours([("rps", configuration, [players[1], "rock"])]) == [at_hand]
