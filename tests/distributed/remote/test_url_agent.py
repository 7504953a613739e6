"""Agents behind a URL, by JSON."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from agent_setup import context
from answering import Answering, reply

from parllel.distributed.remote import Agent, AgentFailure, HttpError, UrlAgent
from parllel.distributed.web import http_client

OBSERVATION = {"step": 1, "remainingOverageTime": 0}
CONFIGURATION = {"actTimeout": 20}


def asked(url, configuration=CONFIGURATION, observation=OBSERVATION):
    with UrlAgent(url, "rps") as agent:
        return agent(observation, configuration)


def answered(answer, configuration=CONFIGURATION):
    with Answering(lambda body: answer) as server:
        return asked(server.url, configuration)


def test_what_is_asked():
    with Answering(lambda body: reply('{"action": 2}')) as server:
        url = server.url.replace("http://", "http://user:p%40ss@") + "path/?agents[]=/a%20b.py&x"
        with UrlAgent(url, "rps", session="s1") as agent:
            assert agent(OBSERVATION, CONFIGURATION) == 2
            assert agent(OBSERVATION, CONFIGURATION) == 2
            assert agent.url == f"http://127.0.0.1:{server.port}/path/?agents[]=/a%20b.py&x"
        line, head, body = server.requests[0]
        # As given, and on one connection.
        assert line == "POST /path/?agents[]=/a%20b.py&x HTTP/1.1"
        assert server.n_connections == 1
    assert head["authorization"].strip() == "Basic dXNlcjpwQHNz"
    assert head["host"].strip() == f"127.0.0.1:{server.port}"
    assert head["content-type"].strip() == "application/json"
    assert json.loads(body) == {
        "action": "act",
        "environment": "rps",
        "configuration": CONFIGURATION,
        "state": {"observation": OBSERVATION},
        "session": "s1",
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"action": {"a": [1, None]}}, {"a": [1, None]}),
        ({"action": None}, None),
        ({"action": "BaseException"}, "BaseException"),
        (
            {"action": "DeadlineExceeded"},
            AgentFailure("TIMEOUT", "its server reports that it exceeded its time"),
        ),
        ({"action": "BaseException::boom"}, AgentFailure("ERROR", "boom")),
        (
            {"action": "BaseException::x", "status": "INVALID", "reason": "a set"},
            AgentFailure("INVALID", "a set"),
        ),
        ({"error": "No agent", "action": 1}, AgentFailure("ERROR", "answered: No agent")),
        ({}, AgentFailure("ERROR", 'answered without "action"')),
        ([1], AgentFailure("ERROR", "answered with list instead of an object")),
    ],
)
def test_what_replies_mean(body, expected):
    assert answered(reply(json.dumps(body))) == expected


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply('{"action": 1}', status="404 Not Found"), "answered with status 404"),
        (reply('{"error": "no"}', status="403 Forbidden"), "answered with status 403: no"),
        (reply("<html>", status="500 Oh"), "answered with status 500"),
        (
            reply("", status="302 Found", head="Location: http://127.0.0.1:1/\r\n"),
            "answered with a redirect (302), which is not followed",
        ),
        (reply("no"), "answered with invalid JSON: expected JSON"),
        (reply('{"action": NaN}'), "expected JSON, which has no NaN"),
        (reply('{"action": 1, "action": 2}'), "the key 'action' occurs twice"),
        (reply("[" * 1000), "nested more deeply"),
        (b"garbage\r\n\r\n", "BadStatusLine"),
        (None, "closed the connection without a reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "more than 16777216 bytes"),
    ],
)
def test_a_server_that_fails_is_an_error_and_never_an_action(answer, reason):
    failure = answered(answer)
    assert failure.status == "ERROR"
    assert failure.reason.startswith("http://127.0.0.1:")
    assert reason in failure.reason


def test_a_reply_without_an_end_is_cut(monkeypatch):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    failure = answered(itertools.chain([head], itertools.repeat(chunk)))
    assert failure.status == "ERROR"
    assert "its reply has more than 16777216 bytes" in failure.reason


def test_a_slow_server_is_waited_for_a_second_beyond_its_time():
    def drip():
        yield b"HTTP/1."
        while True:
            time.sleep(0.05)
            yield b" "

    began = time.monotonic()
    failure = answered(drip(), {"actTimeout": 0.2})
    assert failure.status == "TIMEOUT"
    assert failure.reason.endswith("no reply within 1.2 s")
    assert time.monotonic() - began >= 1.2


def test_a_server_that_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    failure = asked(f"http://user:secret@127.0.0.1:{port}/")
    expected = f"http://127.0.0.1:{port}/: cannot be reached: connection refused"
    assert failure == AgentFailure("ERROR", expected)
    failure = asked("http://host.invalid/")
    assert failure.reason.startswith("http://host.invalid/: cannot be reached")


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]"])
def test_link_local_addresses_are_refused(host):
    failure = asked(f"http://{host}/latest/meta-data")
    assert failure.status == "ERROR"
    assert "is a link-local address, which is refused" in failure.reason


def test_link_local_addresses_are_refused_by_what_a_name_means(monkeypatch):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.1.1", 80))]
    monkeypatch.setattr(http_client.socket, "getaddrinfo", lambda *args, **more: found)
    assert "169.254.1.1 is a link-local address" in asked("http://innocent.example/").reason


def test_a_connection_that_was_closed_meanwhile_is_made_again():
    with Answering(lambda body: reply('{"action": 1}')) as server:
        with UrlAgent(server.url, "rps") as agent:
            assert agent(OBSERVATION, CONFIGURATION) == 1
            server.close_connections()
            # The end has come by now, or comes in the middle of the request.
            while agent._client._idle and agent._client._idle[0].fresh():
                time.sleep(0.001)
            assert agent(OBSERVATION, CONFIGURATION) == 1
        assert server.n_connections == 2


def test_batches_are_one_request():
    body = {
        "actions": [1, "DeadlineExceeded", None],
        "failures": {"2": {"status": "INVALID", "reason": "why"}, "9": {}, "x": 1},
    }
    with Answering(lambda _: reply(json.dumps(body))) as server:
        with UrlAgent(server.url, "rps") as agent:
            one, late, invalid = agent.act_batch([OBSERVATION] * 3, CONFIGURATION)
            assert (one, late.status) == (1, "TIMEOUT")
            assert invalid == AgentFailure("INVALID", "why")
            lost = agent.act_batch([OBSERVATION] * 2, CONFIGURATION)
            assert lost == [AgentFailure("ERROR", 'answered without 2 "actions"')] * 2
        assert json.loads(server.requests[0][2])["observations"] == [OBSERVATION] * 3


def test_initialize():
    with Answering(lambda _: reply('{"status": "initialized", "agent": "rock"}')) as server:
        with UrlAgent(server.url, "rps") as agent:
            assert agent.initialize(["rock"], {"a": 1})["status"] == "initialized"
        assert json.loads(server.requests[0][2]) == {
            "action": "initialize_agents",
            "environment": "rps",
            "agents": ["rock"],
            "configuration": {"a": 1},
        }
    with (
        Answering(lambda _: reply('{"error": "--allow-source"}', status="403 No")) as server,
        UrlAgent(server.url, "rps") as agent,
        pytest.raises(HttpError, match="answered with status 403: --allow-source"),
    ):
        agent.initialize(["rock"])


def test_an_agent_asks_it_and_shows_no_secret():
    with Answering(lambda _: reply('{"action": [1]}')) as server:
        url = server.url.replace("//", "//:secret@")
        with Agent(url, context()) as agent:
            action, log = agent.act(OBSERVATION)
            assert (action, log["stdout"], agent.kind) == ([1], "", "url")
            assert agent.name == server.url
            assert "secret" not in repr(agent)


def test_closing_while_a_request_is_made_leaves_no_connection():
    asking, closed = threading.Event(), threading.Event()

    def answer(body):
        asking.set()
        assert closed.wait(30)
        return reply('{"action": 1}')

    with Answering(answer) as server, ThreadPoolExecutor() as pool:
        agent = UrlAgent(server.url, "rps")
        acting = pool.submit(agent, OBSERVATION, CONFIGURATION)
        assert asking.wait(30)
        agent.close()
        closed.set()
        assert acting.result(30) == 1
        failure = agent(OBSERVATION, CONFIGURATION)
        assert failure == AgentFailure("ERROR", f"{server.url}: used after close()")
