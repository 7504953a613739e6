from __future__ import annotations

import threading
import time

import pytest
from waiting import until

from parllel.distributed.remote.server import Actions
from parllel.distributed.remote.server.permissions import Permissions
from parllel.distributed.web import WebError


def act(session=None, step=0):
    observation = {"step": step, "remainingOverageTime": 60}
    return {"action": "act", "session": session, "state": {"observation": observation}}


def initialize(actions, agent, session=None):
    request = {"action": "initialize_agents", "environment": "rps", "agents": [agent]}
    return actions.handle({**request, "session": session})


def test_agents_of_several_sessions_stay_apart(actions):
    initialize(actions, "by_step.py")
    initialize(actions, "scissors", "one")
    initialize(actions, "paper", "two")
    assert [actions.handle(act(name))["action"] for name in (None, "one", "two")] == [0, 2, 1]
    assert actions.handle({"action": "dispose", "session": "one"}) == "Successfully disposed"
    assert "error" in actions.handle(act("one"))
    assert actions.handle(act("two")) == {"action": 1}
    assert actions.handle(act("default", 1)) == {"action": 1}


def test_there_is_room_for_so_many_sessions(agents):
    with Actions(Permissions(agents), sessions=2) as actions:
        initialize(actions, "rock", "a")
        initialize(actions, "rock", "b")
        with pytest.raises(WebError, match="all 2 sessions are in use; dispose of one") as raised:
            initialize(actions, "paper", "c")
        assert raised.value.status == 503
        initialize(actions, "paper", "b")
        actions.handle({"action": "dispose", "session": "a"})
        initialize(actions, "scissors", "c")
        assert [actions.handle(act(name))["action"] for name in "bc"] == [1, 2]


def test_unused_agents_end(agents):
    with Actions(Permissions(agents), idle_s=0.2) as actions:
        initialize(actions, "by_step.py")
        initialize(actions, "rock", "other")
        until(lambda: not len(actions._sessions))
        assert "error" in actions.handle(act())


def test_an_agent_in_use_does_not_count_as_unused(agents):
    with Actions(Permissions(agents), idle_s=0.05) as actions:
        (agents / "slow.py").write_text(
            "import time\n\ndef agent(observation):\n    time.sleep(0.5)\n    return 1\n"
        )
        initialize(actions, "slow.py")
        assert actions.handle(act()) == {"action": 1}


def test_an_agent_that_hangs_is_disposed_of_while_it_acts(actions):
    initialize(actions, "sleeping.py")
    replies = []
    acting = threading.Thread(target=lambda: replies.append(actions.handle(act())))
    acting.start()
    until(lambda: actions._sessions.get("default").idle_s == 0.0)
    assert actions.handle({"action": "dispose"}) == "Successfully disposed"
    acting.join(20)
    assert not acting.is_alive()
    assert replies[0]["status"] == "ERROR"


def test_the_clients_of_a_hanging_agent_take_few_threads(actions):
    initialize(actions, "sleeping.py")
    refused = []

    def ask():
        try:
            actions.handle(act())
        except WebError as error:
            refused.append(error)

    clients = [threading.Thread(target=ask) for _ in range(12)]
    for client in clients:
        client.start()
    until(lambda: len(refused) == 4)
    time.sleep(0.05)
    assert [error.status for error in refused] == [429] * 4
    assert "the agent has 8 pending requests" in str(refused[0])
    actions.handle({"action": "dispose"})
    for client in clients:
        client.join(20)
    assert len(refused) == 4


def test_a_new_agent_takes_the_place_of_one_whose_code_is_broken_not_before(actions):
    initialize(actions, "by_step.py")
    with pytest.raises(WebError, match=r"broken\.py"):
        initialize(actions, "broken.py")
    assert actions.handle(act(step=2)) == {"action": 2}
