from __future__ import annotations

import pytest
from asking import get, post

INITIALIZE = {"action": "initialize_agents", "environment": "rps", "agents": ["scissors"]}
ACT = {"action": "act", "state": {"observation": {"step": 0, "remainingOverageTime": 60}}}


def test_the_flow_of_one_agent(serve):
    url = serve()
    reply = post(url, ACT)
    # With this status, as clients of the package take any other for a broken server.
    assert (reply.status, reply.json()) == (
        200,
        {"error": "No agent initialized. Call initialize_agents first."},
    )
    reply = post(url, INITIALIZE)
    assert reply.json() == {"status": "initialized", "agent": "scissors"}
    assert post(url, ACT).json() == {"action": 2}
    for text in (b"Successfully disposed", b"Already disposed"):
        reply = post(url, {"action": "dispose"})
        assert (reply.status, reply.body) == (200, text)


def test_get_answers_the_list_and_the_state_alone(serve):
    url = serve()
    names = get(f"{url}/?action=list").json()
    assert "rps" in names
    assert get(f"{url}/").json() == names
    assert get(f"{url}/health").status == 200
    assert get(f"{url}/ready").status == 200
    for action in ("act", "run", "dispose", "initialize_agents"):
        reply = get(f"{url}/?action={action}&environment=rps")
        assert reply.status == 405
        assert "use POST" in reply.json()["error"]


def test_json_needs_no_content_type_and_other_types_are_refused(serve):
    url = serve()
    body = b'{"action": "list"}'
    assert "rps" in post(url, body=body).json()
    for content_type in ("application/x-www-form-urlencoded", "text/plain", "application/xml"):
        reply = post(url, body=body, headers={"Content-Type": content_type})
        assert reply.status == 415
        assert "application/json" in reply.json()["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "JSON"),
        (b"junk", "JSON"),
        (b"[1]", "expected a JSON object"),
        (b'{"action": "list", "action": "run"}', "action"),
        (b'{"action": "act", "x": NaN}', "JSON"),
        (b"[" * 100_000, "deep|JSON|nested"),
        (b"{}", "action: expected one of"),
    ],
)
def test_bad_bodies_are_refused(serve, body, message):
    reply = post(serve(), body=body)
    assert reply.status == 400
    assert set(reply.json()) == {"error"}
    assert b"Traceback" not in reply.body


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            {**INITIALIZE, "configuraton": {"signs": 5}},
            "'configuraton'; expected agents, configuration,",
        ),
        (
            {"action": "evaluate", "environment": "rps", "n_episodes": 3},
            "evaluate: unknown fields 'n_episodes'",
        ),
        ({"action": "run", "environment": "rps", "episodes": 3}, "run: unknown fields 'episodes'"),
        ({**ACT, "b": 1, "a": 2}, "act: unknown fields 'a', 'b'; expected"),
        ({"action": "dispose", "\u00e9": 1}, "'\\xe9'"),
    ],
)
def test_unknown_fields_are_refused(serve, request_, message):
    reply = post(serve(), request_)
    assert reply.status == 400
    assert message in reply.json()["error"]


def test_a_session_is_named_in_the_body_or_in_a_header(serve):
    url = serve()
    post(url, {**INITIALIZE, "session": "one"})
    assert post(url, {**ACT, "session": "one"}).json() == {"action": 2}
    by_header = post(url, ACT, headers={"Parllel-Session": "one"})
    assert by_header.json() == {"action": 2}
    assert "error" in post(url, ACT).json()


def test_an_episode_that_is_rendered_has_its_type(serve):
    request = {
        "action": "run",
        "environment": "rps",
        "agents": ["rock", "paper"],
        "configuration": {"episodeSteps": 3},
    }
    url = serve()
    kinds = {"json": "application/json", "ansi": "text/plain", "html": "text/html"}
    for mode, kind in kinds.items():
        reply = post(url, {**request, "render": {"mode": mode}})
        assert reply.status == 200
        assert reply.content_type.startswith(kind)
