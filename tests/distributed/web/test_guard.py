"""Who may ask: Host, Origin, token and rate, for every verb and path."""

from __future__ import annotations

import base64
import itertools

import httpx2
import pytest
from raw_http import RawConnection

from parllel.distributed.web import ServerSettings, build_app
from parllel.distributed.web.address import HostNames
from parllel.distributed.web.guard import Guard, RateLimit
from parllel.distributed.web.web_error import WebError

TOKEN = "a-token-of-24-characters"
VERBS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH")
PATHS = ("/", "/health", "/ready", "/none")


def names(host, *allowed):
    return HostNames(ServerSettings(host=host, token=TOKEN, allowed_hosts=allowed))


def test_another_host_or_origin_is_refused_for_every_verb(serve, client):
    http = client(serve())
    for verb, path in itertools.product(VERBS, PATHS):
        wrong = http.request(verb, path, headers={"host": "evil.example"})
        assert wrong.status_code == 421, (verb, path)
        wrong = http.request(verb, path, headers={"origin": "http://evil.example"})
        assert wrong.status_code == 403, (verb, path)
        assert not [name for name in wrong.headers if name.startswith("access-control")]


def test_the_refusal_of_a_host_names_the_flag(serve, client):
    reply = client(serve()).get("/", headers={"host": "Agent-1:8081"})
    expected = "this server is not called agent-1; if it is, start it with --allow-host agent-1"
    assert reply.json() == {"error": expected}
    assert (
        client(serve(allowed_hosts=("agent-1",)))
        .get("/", headers={"host": "Agent-1:8081"})
        .is_success
    )


def test_loopback_has_several_names(serve, client):
    http = client(serve())
    for host in ("localhost", "LOCALHOST.:80", "127.0.0.1:1", "127.9.9.9", "[::1]:8"):
        assert http.get("/health", headers={"host": host}).is_success, host


@pytest.mark.parametrize(
    "host",
    ["", "a b", "localhost:", "localhost:x", "a@localhost", "[::1", "[1]", "localhost/", "é"],
)
def test_a_host_of_another_form_is_refused(host):
    with pytest.raises(WebError, match="Host header is not of the form NAME:PORT"):
        Guard(ServerSettings()).check({b"host": host.encode()}, "127.0.0.1", True)


def test_http_1_0_without_a_host_is_refused(serve):
    with RawConnection(serve()) as connection:
        connection.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert connection.reply() == (400, {"error": "a request must have a Host header"})


def test_names_depend_on_the_address():
    assert "10.0.0.1" in names("0.0.0.0")
    assert "2001:db8::1" in names("::")
    assert "evil.example" not in names("0.0.0.0")
    assert "10.0.0.1" not in names("127.0.0.1")
    assert "10.0.0.1" not in names("10.0.0.2")
    assert "127.0.0.1" not in names("10.0.0.2")
    assert "10.0.0.2" in names("10.0.0.2")
    assert "2001:db8::1" in names("2001:DB8:0::1")
    assert "a.example" in names("10.0.0.2", "A.Example.")


@pytest.mark.parametrize(
    ("origin", "host", "passes"),
    [
        ("http://localhost:8081", "localhost:8081", True),
        ("https://localhost", "localhost", True),  # a proxy adds TLS
        ("https://localhost", "localhost:443", True),
        ("HTTP://LocalHost:80", "localhost", True),
        ("http://localhost:8082", "localhost:8081", False),
        ("http://localhost", "localhost:8081", False),
        ("http://127.0.0.1:8081", "localhost:8081", False),
        ("http://localhost.evil.example:8081", "localhost:8081", False),
        ("http://evil@localhost:8081", "localhost:8081", False),
        ("file://localhost:8081", "localhost:8081", False),
        ("null", "localhost:8081", False),
        ("", "localhost:8081", False),
    ],
)
def test_an_origin_is_the_host_that_is_asked(origin, host, passes):
    guard, headers = Guard(ServerSettings()), {b"host": host.encode(), b"origin": origin.encode()}
    if passes:
        guard.check(headers, "127.0.0.1", True)
    else:
        with pytest.raises(WebError, match="pages of other origins are refused"):
            guard.check(headers, "127.0.0.1", True)


def test_an_image_on_another_page_is_refused(serve, client):
    http = client(serve())
    refused = {"error": "requests from pages of other sites are refused"}
    for site in ("cross-site", "same-site"):
        reply = http.get("/", headers={"sec-fetch-site": site})
        assert (reply.status_code, reply.json()) == (403, refused)
    assert http.get("/", headers={"sec-fetch-site": "same-origin"}).is_success


def basic(password, user="anyone"):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


RIGHT = (f"Bearer {TOKEN}", f"bearer  {TOKEN}", basic(TOKEN), basic(TOKEN, user=""))
WRONG = (
    None,
    "",
    "Bearer",
    f"Bearer {TOKEN[:-1]}",
    f"Bearer {TOKEN}x",
    f"Digest {TOKEN}",
    TOKEN,
    basic(""),
    basic("x", user=TOKEN),
    "Basic " + base64.b64encode(TOKEN.encode()).decode(),
    "Basic !",
)


def test_the_token_is_bearer_or_the_password_of_basic(serve, client):
    http = client(serve(token=TOKEN))
    for path, status in (("/", 200), ("/loop", 200), ("/none", 404)):
        for given in RIGHT:
            reply = http.post(path, json=1, headers={"authorization": given})
            assert reply.status_code == status, (path, given)
        for given in WRONG:
            headers = {} if given is None else {"authorization": given}
            reply = http.post(path, json=1, headers=headers)
            assert reply.status_code == 401, (path, given)
            assert reply.headers["www-authenticate"] == 'Bearer, Basic realm="parllel"'
            assert "Authorization: Bearer TOKEN" in reply.json()["error"]


def test_the_token_is_not_taken_from_the_query(serve, client):
    http = client(serve(token=TOKEN))
    for query in (f"token={TOKEN}", f"access_token={TOKEN}", TOKEN):
        assert http.get(f"/?{query}").status_code == 401


def test_a_token_in_the_url_is_one(serve, client):
    server = serve(token=TOKEN)
    url = server.url.replace("http://", f"http://agent:{TOKEN}@")
    assert httpx2.post(url, json=1, trust_env=False).json() == 1


def test_whether_it_is_alive_needs_no_token(serve, client):
    http = client(serve(token=TOKEN))
    assert http.get("/health").is_success
    assert http.get("/ready").is_success
    assert http.get("/health", headers={"host": "evil.example"}).status_code == 421


def test_a_client_that_asks_too_often_is_told_to_wait(serve, client):
    http = client(serve(requests_per_s=3.0))
    replies = [http.get("/health") for _ in range(12)]
    refused = [reply for reply in replies if reply.status_code == 429]
    assert [reply.status_code for reply in replies[:3]] == [200] * 3
    assert len(refused) >= 3
    assert refused[0].headers["retry-after"] == "1"
    assert refused[0].json() == {"error": "too many requests per second from this client"}


def test_each_client_has_a_rate_of_its_own(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("parllel.distributed.web.guard.time.monotonic", lambda: now[0])
    limit = RateLimit(2.0)
    assert [limit.wait_s("10.0.0.1") for _ in range(3)] == [0.0, 0.0, 0.5]
    assert limit.wait_s("10.0.0.2") == 0.0
    # Refused requests take nothing.
    assert limit.wait_s("10.0.0.1") == 0.5
    now[0] += 0.5
    assert [limit.wait_s("10.0.0.1") for _ in range(2)] == [0.0, 0.5]
    now[0] += 1000.0
    assert [limit.wait_s("10.0.0.1") for _ in range(3)] == [0.0, 0.0, 0.5]


def test_a_network_of_ipv6_is_one_client_and_few_clients_are_kept():
    limit = RateLimit(1e-6)
    assert limit.wait_s("2001:db8::1") == 0.0
    assert limit.wait_s("2001:db8::2") > 0.0
    assert limit.wait_s("2001:db8:0:1::1") == 0.0
    for number in range(10_001):
        limit.wait_s(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert limit.wait_s("2001:db8::2") == 0.0


def test_neither_settings_nor_app_show_the_token():
    settings = ServerSettings(token=TOKEN)
    shown = f"{settings!r} {settings.public()} {build_app([], settings)!r}"
    assert TOKEN not in shown
