"""The package's own client plays agents on our server, and our client plays agents on its server."""

from __future__ import annotations

import json
import subprocess

import pytest
from asking import post
from serving import http_server, kaggle_server

from parllel.distributed.remote import make

TOKEN = "a-token-of-this-test"
# Rewards and moves must differ with who plays, and with what an agent sees.
AGENT = """
def agent(observation, configuration):
    if "board" in observation:
        free = [c for c in range(configuration.columns) if observation.board[c] == 0]
        return free[(3 * observation.step + observation.mark) % len(free)]
    if observation.step == 0:
        return 2
    return (observation.lastOpponentAction + observation.step) % configuration.signs
"""
# Configuration, and the seat of the agent; the other one always does the same.
EPISODES = {
    "rps": ({"episodeSteps": 12, "tieRewardThreshold": 1}, 0),
    "connectx": ({"columns": 5, "rows": 4, "inarow": 3}, 1),
}
OTHER = """
def agent(observation, configuration):
    return next(c for c, disc in enumerate(observation.get("board", [0])) if disc == 0)
"""


# For the package's Python: play the games that standard input names, and print the episodes.
CLIENT = """
import json, sys
from kaggle_environments import make
episodes = []
for environment, configuration, agents in json.load(sys.stdin):
    game = make(environment, configuration)
    game.run(agents)
    episodes.append(game.toJSON())
json.dump(episodes, open(sys.argv[1], "w"))
"""


@pytest.fixture
def theirs(kaggle_python, tmp_path):
    """Return what lets the package play games, each of an environment, a configuration and agents."""

    def theirs(games):
        out = tmp_path / "episodes.json"
        command = [kaggle_python, "-c", CLIENT, out]
        subprocess.run(
            command,
            input=json.dumps(games),
            text=True,
            check=True,
            capture_output=True,
            timeout=120,
        )
        return [outcome(episode) for episode in json.loads(out.read_text())]

    return theirs


def ours(games):
    """Play games, as the package does in `theirs`."""
    outcomes = []
    for environment, configuration, agents in games:
        with make(environment, configuration) as made:
            made.run(agents)
            outcomes.append(outcome(json.loads(made.render("json"))))
    return outcomes


def outcome(episode):
    """Return what must be equal between the two."""
    steps = [
        [[one["action"], one["reward"], one["status"]] for one in row] for row in episode["steps"]
    ]
    return episode["rewards"], episode["statuses"], steps


@pytest.fixture
def agent(agents):
    """The file of an agent that both can load."""
    (agents / "agent.py").write_text(AGENT)
    (agents / "other.py").write_text(OTHER)
    return str(agents / "agent.py")


def test_both_clients_play_both_servers(theirs, kaggle_python, agent, agents):
    other = str(agents / "other.py")
    with http_server("--agent-root", agents) as our_url, kaggle_server(kaggle_python) as their_url:
        for environment, (configuration, seat) in EPISODES.items():
            # Its server keeps an agent with the environment in which it was first asked for.
            its_own = agents / f"agent-{environment}.py"
            its_own.write_text(AGENT)
            request = {"action": "initialize_agents", "environment": environment}
            assert post(our_url, {**request, "agents": [its_own.name]}).status == 200
            # Its server has no such action, and takes the agent from the query.
            players = [agent, our_url, f"{their_url}/?agents[]={its_own}"]
            games = [
                (environment, configuration, [player, other] if seat == 0 else [other, player])
                for player in players
            ]
            expected, *behind_urls = theirs(games)
            assert expected[1] == ["DONE", "DONE"]
            assert len(expected[2]) > 6
            assert [*behind_urls, *ours(games)] == [expected] * 5, environment


def test_a_token_in_the_url_lets_their_client_in(theirs, agent, agents, tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    with http_server("--token-file", file, "--agent-root", agents) as url:
        request = {"action": "initialize_agents", "environment": "rps", "agents": [agent]}
        assert post(url, request).status == 401
        assert post(url, request, password=TOKEN).status == 200
        with_token = url.replace("://", f"://player:{TOKEN}@")
        games = [("rps", EPISODES["rps"][0], [player, "rock"]) for player in (agent, with_token)]
        expected, behind_url = theirs(games)
        assert [behind_url, *ours(games)] == [expected] * 3
