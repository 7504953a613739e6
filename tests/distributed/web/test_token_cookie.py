"""A browser that opens a page with the token gets it as a cookie, and needs it nowhere else."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from parllel.distributed.operators.dashboard.dashboard import file_routes
from parllel.distributed.web import Route, ServerSettings, SocketRoute, WebServer, build_app

TOKEN = 'a;token="of",some%length'


async def greet(socket):
    await socket.send("hello")


@pytest.fixture
def server():
    app = build_app(
        [
            *file_routes({"/": b"<p>page", "/page.js": b"run()"}),
            Route("/api", {"GET": lambda _: 1}),
        ],
        ServerSettings(token=TOKEN, cookie=True),
        sockets=[SocketRoute("/ws", greet)],
    )
    with WebServer(app) as server:
        yield server


def test_the_token_of_the_address_becomes_a_cookie(server, client):
    browser = client(server)
    entered = browser.get(f"/?token={quote(TOKEN, safe='')}")
    assert entered.status_code == 303
    assert entered.headers["location"] == "/"
    port = urlsplit(server.url).port
    name, *attributes = entered.headers["set-cookie"].split("; ")
    assert name == f"parllel_{port}={quote(TOKEN, safe='')}"
    assert set(attributes) == {"Path=/", "HttpOnly", "SameSite=Strict"}
    assert browser.get("/").text == "<p>page"
    assert browser.get("/api").json() == 1
    with connect(
        f"ws://127.0.0.1:{port}/ws", additional_headers={"Cookie": name}, proxy=None
    ) as socket:
        assert socket.recv(timeout=20) == "hello"


def test_no_path_of_the_address_leads_elsewhere(server, client):
    entered = client(server).get(f"{server.url}//evil.example/?token={quote(TOKEN, safe='')}")
    assert (entered.status_code, entered.headers["location"]) == (303, "/")


@pytest.mark.parametrize(
    "query", ["", "?token=", "?token=wrong", "?Token=x&token=%ff", "?token", "?" + "token=a&" * 50]
)
def test_a_wrong_token_opens_nothing(server, client, query):
    refused = client(server).get(f"/{query}")
    assert refused.status_code == 401
    assert "?token=" in refused.json()["error"]
    # No form for a name and a password.
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "set-cookie" not in refused.headers


@pytest.mark.parametrize(
    "cookie", ["parllel_1={}", "parllel={}", "parllel_{port}=wrong", "=;=;{}", ""]
)
def test_a_wrong_cookie_opens_nothing(server, client, cookie):
    port = urlsplit(server.url).port
    header = {"Cookie": cookie.format(quote(TOKEN, safe=""), port=port)}
    assert client(server).get("/api", headers=header).status_code == 401
    with (
        pytest.raises(InvalidStatus, match="401"),
        connect(f"ws://127.0.0.1:{port}/ws", additional_headers=header, proxy=None),
    ):
        pass


def test_a_bearer_needs_no_cookie_and_a_wrong_one_is_not_helped_by_it(server, client):
    port = urlsplit(server.url).port
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert client(server).get("/api", headers=right).json() == 1
    wrong = {"Authorization": "Bearer no", "Cookie": f"parllel_{port}={quote(TOKEN, safe='')}"}
    assert client(server).get("/api", headers=wrong).status_code == 401


def test_pages_of_other_sites_cannot_use_the_cookie(server, client):
    port = urlsplit(server.url).port
    headers = {"Cookie": f"parllel_{port}={quote(TOKEN, safe='')}", "Origin": "http://evil.example"}
    assert client(server).get("/api", headers=headers).status_code == 403


def test_without_the_setting_neither_is_looked_at(serve, client):
    server = serve(token="a-token-of-some-length")
    browser = client(server)
    port = urlsplit(server.url).port
    assert browser.get("/?token=a-token-of-some-length").status_code == 401
    cookie = {"Cookie": f"parllel_{port}=a-token-of-some-length"}
    assert browser.get("/", headers=cookie).status_code == 401


def test_files_come_with_a_policy(server, client):
    browser = client(server, headers={"Authorization": f"Bearer {TOKEN}"})
    page, script = browser.get("/"), browser.get("/page.js")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.text == "run()"
    for reply in (page, script):
        assert (
            "default-src 'self'; img-src 'self' blob:;" in reply.headers["content-security-policy"]
        )
        assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
    assert browser.head("/page.js").text == ""
    assert browser.post("/page.js", json=1).status_code == 405
    assert browser.get("/../page.py").status_code == 404


def test_a_file_of_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"/page.exe: expected a file that ends in css, html"):
        file_routes({"/page.exe": b""})
