from __future__ import annotations

import numpy as np
import pytest
from asking import post
from foreign_protobuf import request, value_of_response

from parllel.distributed.remote.proto import read_response, request_bytes
from parllel.distributed.remote.server.permissions import Permissions

PROTOBUF = {"Content-Type": "application/x-protobuf"}
OBSERVATION = {"step": 2, "remainingOverageTime": 60}


def initialize(url, agent, **fields):
    request = {"action": "initialize_agents", "environment": "rps", "agents": [agent], **fields}
    return post(url, request)


def turn(url, *values, name="process_turn", session=None, **named):
    """Return the status and the payload of the reply to one turn."""
    headers = PROTOBUF if session is None else {**PROTOBUF, "Parllel-Session": session}
    reply = post(url, body=request_bytes(name, values, named), headers=headers)
    assert reply.content_type == "application/x-protobuf"
    return reply.status, read_response(reply.body)


def test_an_agent_acts_by_protobuf_as_by_json(serve, agents):
    url = serve(Permissions(agents))
    assert turn(url, OBSERVATION, {}) == (
        200,
        {"error": "No agent initialized. Call initialize_agents first."},
    )
    initialize(url, "by_step.py")
    assert turn(url, OBSERVATION, {}) == (200, {"action": 2})
    assert turn(url, observation=OBSERVATION, configuration=None) == (200, {"action": 2})
    assert turn(url, OBSERVATION) == (200, {"action": 2})


def test_failures_are_those_of_json(serve, agents):
    url = serve(Permissions(agents))
    initialize(url, "failing.py")
    status, reply = turn(url, OBSERVATION, {})
    assert status == 200
    assert reply["action"].startswith("BaseException::")
    assert "no idea" in reply["action"]
    initialize(url, "sleeping.py")
    configuration = {"actTimeout": 0.1}
    status, reply = turn(url, {"step": 0, "remainingOverageTime": 0}, configuration)
    assert (status, reply["action"]) == (200, "DeadlineExceeded")


def test_a_session_is_named_in_a_header(serve):
    url = serve()
    initialize(url, "paper", session="one")
    assert turn(url, OBSERVATION, {}, session="one") == (200, {"action": 1})
    assert "error" in turn(url, OBSERVATION, {})[1]


@pytest.mark.parametrize(
    ("values", "named", "message"),
    [
        ((1,), {}, "observation: expected an object"),
        (({}, {}, {}), {}, "expected the arguments observation and configuration"),
        (({},), {"observation": {}}, "expected the arguments observation and configuration"),
        ((), {"state": {}}, "expected the arguments observation and configuration"),
        (({}, [1]), {}, "configuration: expected an object"),
    ],
)
def test_mistakes_are_refused(serve, values, named, message):
    url = serve()
    initialize(url, "paper")
    status, reply = turn(url, *values, **named)
    assert status == 400
    assert message in reply["error"]


def test_another_endpoint_is_not_there(serve):
    status, reply = turn(serve(), name="shutdown")
    assert status == 404
    assert "process_turn" in reply["error"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 404, "expected the endpoint process_turn"),
        (b"junk", 400, "message"),
        (b"\x0a\xff\xff\xff\xff\x0f", 400, "message"),
        (b"\x12\x02\x52\x00", 400, "polars"),
    ],
)
def test_bad_messages_are_refused_by_protobuf(serve, body, status, message):
    reply = post(serve(), body=body, headers=PROTOBUF)
    assert (reply.status, reply.content_type) == (status, "application/x-protobuf")
    assert message in read_response(reply.body)["error"]


def test_an_action_without_a_protobuf_is_an_error(serve, agents):
    (agents / "long.py").write_text("def agent(observation):\n    return 2**70\n")
    url = serve(Permissions(agents))
    assert initialize(url, "long.py").status == 200
    status, reply = turn(url, OBSERVATION)
    assert (status, "64 bit" in reply["error"]) == (200, True), reply
    # A session that has no name is refused by protobuf as well.
    status, reply = turn(url, OBSERVATION, session="no name")
    assert (status, reply["error"].startswith("session: expected")) == (400, True)


def test_a_foreign_client_may_send_arrays_as_its_configuration(serve, agents):
    url = serve(Permissions(agents))
    initialize(url, "paper")
    body = request("process_turn", {"step": 1}, {"mine": np.arange(3)})
    for _ in range(3):  # the second is compared with the first
        reply = post(url, body=body, headers=PROTOBUF)
        assert (reply.status, value_of_response(reply.body)) == (200, {"action": 1})
