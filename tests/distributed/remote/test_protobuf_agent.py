"""Agents behind a URL, by protobuf."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from agent_setup import context
from answering import Answering, reply

from parllel.distributed.remote import Agent, AgentFailure, ProtobufAgent
from parllel.distributed.remote.proto import read_request
from parllel.distributed.remote.proto.messages import response_bytes

OBSERVATION = {"step": 1, "board": [0, 1], "remainingOverageTime": 0.5}
KIND = "application/x-protobuf"


def test_what_is_asked():
    with Answering(lambda body: reply(response_bytes({"action": (1, 2)}), kind=KIND)) as server:
        url = server.url.replace("//", "//:secret@") + "?a=1"
        with ProtobufAgent({"type": "proto", "url": url}, "rps", session="s") as agent:
            assert agent(OBSERVATION, {"actTimeout": 20, "text": "ä"}) == (1, 2)
            assert "secret" not in agent.url
        line, head, body = server.requests[0]
    assert line == "POST /?a=1 HTTP/1.1"
    assert head["content-type"].strip() == KIND
    assert head["parllel-session"].strip() == "s"
    assert head["authorization"].strip() == "Basic OnNlY3JldA=="
    assert read_request(body) == (
        "process_turn",
        [OBSERVATION, {"actTimeout": 20, "text": "ä"}],
        {},
    )


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (reply(response_bytes({"error": "no agent"})), "answered: no agent"),
        (reply(response_bytes({"action": "BaseException::boom"})), "boom"),
        (reply(response_bytes([1])), "answered with list instead of an object"),
        (reply(b"\xff\xff"), "expected a protobuf message"),
        (reply(b""), "expected a payload with a value"),
        (reply('{"error": "--allow"}', status="403 No"), "answered with status 403: --allow"),
        (
            reply(response_bytes({"error": "why"}), status="400 No", kind=KIND),
            "answered with status 400: why",
        ),
        (reply("<html>", status="500 Oh"), "answered with status 500"),
        (None, "closed the connection without a reply"),
    ],
)
def test_a_server_that_fails_is_an_error_and_never_an_action(answer, failure):
    with (
        Answering(lambda body: answer) as server,
        ProtobufAgent({"proto_config": {"url": server.url}}, "rps") as agent,
    ):
        found = agent(OBSERVATION, {"actTimeout": 20})
    assert isinstance(found, AgentFailure)
    assert found.status == "ERROR"
    assert failure in found.reason


def test_deadlines():
    asked_in_vain = threading.Event()

    def late():
        yield b"HTTP/1.1 200 OK\r\n"
        asked_in_vain.wait(30)

    with (
        Answering(lambda body: late()) as server,
        Agent({"type": "proto", "url": server.url}, context(actTimeout=0.1)) as agent,
    ):
        failure, _ = agent.act({"remainingOverageTime": 0.1})
        asked_in_vain.set()
        assert failure == AgentFailure("TIMEOUT", f"{server.url}: no reply within 1.2 s")
    with Answering(lambda body: reply(response_bytes({"action": "DeadlineExceeded"}))) as server:
        agent = ProtobufAgent({"type": "proto", "url": server.url}, "rps")
        assert agent(OBSERVATION, {}).status == "TIMEOUT"
        agent.close()


def test_what_has_no_payload_is_an_error_and_actions_become_json():
    board = {"action": {"board": np.zeros(2, np.int8)}}
    with (
        Answering(lambda body: reply(response_bytes(board))) as server,
        Agent({"type": "proto", "url": server.url}, context()) as agent,
    ):
        assert agent.act(OBSERVATION)[0] == {"board": [0, 0]}
        failure, _ = agent.act({"too": [2**64]})
        assert failure.status == "ERROR"
        assert "args[0].too[0]: expected an int that fits in 64 bits" in failure.reason
