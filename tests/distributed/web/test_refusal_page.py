"""What is refused is a page for a browser, and JSON for a program."""

from __future__ import annotations

import pytest

from parllel.distributed.web import Route, ServerSettings, WebError, WebServer, build_app

TOKEN = "a-token-of-24-characters"
# As Firefox and Chromium send it for a page.
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


def refuse(call):
    raise WebError(404, "no <b>such</b> & thing")


@pytest.fixture(params=[True, False], ids=["page", "programs"])
def server(request):
    routes = [Route("/", {"GET": lambda call: "in"}), Route("/hostile", {"GET": refuse})]
    settings = ServerSettings(token=TOKEN, cookie=request.param)
    with WebServer(build_app(routes, settings)) as server:
        yield server


def test_a_browser_without_token_sees_how_to_get_in(server, client):
    reply = client(server).get("/", headers={"accept": BROWSER})
    assert (reply.status_code, reply.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert reply.text.startswith("<!DOCTYPE html>")
    # A page has an address with the token; a server for programs takes it as a password.
    expected = f"{server.url}/?token=" if server.settings.cookie else "password"
    assert expected in reply.text
    assert "{" not in reply.text.partition("<body>")[2]
    assert TOKEN not in reply.text


def test_a_wrong_token_is_said_to_be_wrong(server, client):
    reply = client(server).get("/?token=wrong", headers={"accept": BROWSER})
    assert reply.status_code == 401
    assert reply.text.startswith("<!DOCTYPE html>")
    assert "wrong" not in reply.text.partition("<body>")[2]  # nothing of the request is repeated


@pytest.mark.parametrize(
    "accept", [None, "*/*", "application/json", "application/json, text/html;q=0.5", "text/htmlx"]
)
def test_programs_keep_their_json(server, client, accept):
    headers = {} if accept is None else {"accept": accept}
    reply = client(server).get("/", headers=headers)
    assert (reply.status_code, reply.headers["content-type"]) == (401, "application/json")
    assert reply.json()["error"].startswith("expected the server's token")


def test_what_a_page_says_is_text(server, client):
    headers = {"accept": BROWSER, "authorization": f"Bearer {TOKEN}"}
    reply = client(server).get("/hostile", headers=headers)
    assert reply.status_code == 404
    assert "no &lt;b&gt;such&lt;/b&gt; &amp; thing" in reply.text
    reply = client(server).get("/", headers={**headers, "host": "evil.example"})
    assert (reply.status_code, reply.text[:15]) == (421, "<!DOCTYPE html>")
    assert "--allow-host evil.example" in reply.text


def test_head_has_no_body(server, client):
    reply = client(server).head("/", headers={"accept": BROWSER})
    assert (reply.status_code, reply.content) == (401, b"")
