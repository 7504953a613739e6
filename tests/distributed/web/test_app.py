"""What handlers get, what clients get back, and which requests never come to a handler."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest
from raw_http import RawConnection, request

from parllel.distributed.web import Response, Route, WebError, build_app


@pytest.mark.parametrize("path", ["/", "/loop"])
def test_values_come_back(serve, client, path):
    http = client(serve())
    value = {"é": [1, 2.5, None, True, "\u2028"], "empty": {}}
    reply = http.post(path, json=value)
    assert (reply.status_code, reply.json()) == (200, value)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert "server" not in reply.headers


def test_a_body_without_a_content_type_is_json(serve, client):
    reply = client(serve()).post("/", content=b"[1]")
    assert (reply.status_code, reply.json()) == (200, [1])


def test_a_query_has_each_field_once(serve, client):
    http = client(serve())
    assert http.get("/?a=1&b=%C3%A9&c=").json() == {"a": "1", "b": "é", "c": ""}
    assert http.get("/?a=1&a=2").json() == {"error": "a query field occurs twice"}
    for query in ("a=%ff", "&".join(f"a{i}=1" for i in range(101))):
        reply = http.get(f"/?{query}")
        assert (reply.status_code, reply.json()) == (
            400,
            {"error": "expected at most 100 query fields in UTF-8"},
        )


def test_a_handler_replies_with_bytes_and_headers(serve, client):
    def handler(call):
        assert call.header("X-Session") == "a"
        return Response(call.body[::-1], 201, "application/x-protobuf", ((b"x-more", b"yes"),))

    route = Route("/", {"POST": handler}, ("application/x-protobuf",))
    http = client(serve(route))
    headers = {"content-type": "Application/X-Protobuf; a=b", "x-session": "a"}
    reply = http.post("/", content=b"\x00\x01", headers=headers)
    assert (reply.status_code, reply.content) == (201, b"\x01\x00")
    assert reply.headers["x-more"] == "yes"


@pytest.mark.parametrize("n", [10, 7])
def test_a_body_in_parts_is_sent_as_they_come(serve, n):
    async def parts():
        for i in range(n):
            yield b"%d" % i
            if i == 0:
                await came.wait()

    async def handler(call):
        return Response(bytes(10), parts=parts())

    came = asyncio.Event()

    async def go_on(call):
        came.set()

    server = serve(Route("/", {"GET": handler}), Route("/on", {"GET": go_on}))
    with RawConnection(server) as connection, RawConnection(server) as other:
        connection.send(request(method=b"GET"))
        received = b""
        while not received.endswith(b"\r\n\r\n0"):
            received += connection.socket.recv(65536)
        other.send(request(method=b"GET", path=b"/on"))
        assert other.reply() == (200, None)
        while len(received.partition(b"\r\n\r\n")[2]) < n:
            received += connection.socket.recv(65536)
        assert received.endswith(b"0123456789"[:n])
        if n < 10:
            # The client learns that some is missing.
            assert connection.is_closed()
            return
        connection.send(request(method=b"HEAD"), request(method=b"GET", path=b"/on"))
        while received.count(b"HTTP/1.1 200") < 3 or not received.endswith(b"null"):
            received += connection.socket.recv(65536)


def test_head_is_answered_without_a_body(serve, client):
    reply = client(serve()).head("/?a=1")
    assert (reply.status_code, reply.content) == (200, b"")


@pytest.mark.parametrize(
    ("method", "path", "content_type", "body", "status", "error"),
    [
        ("POST", "/none", None, b"1", 404, "nothing is served at this path"),
        ("PUT", "/", None, b"1", 405, "expected GET, POST at this path"),
        ("OPTIONS", "/", None, b"", 405, "expected GET, POST at this path"),
        ("POST", "/health", None, b"1", 405, "expected GET at this path"),
        (
            "POST",
            "/",
            "text/plain",
            b"1",
            415,
            "Content-Type: expected application/json, got 'text/plain'",
        ),
        ("POST", "/", "application/json; charset=latin-1", b"1", 415, "expected a body in UTF-8"),
        ("POST", "/", None, b"[NaN]", 400, "expected JSON, which has no NaN"),
        ("POST", "/", None, b"\xff", 400, "expected JSON in UTF-8"),
        ("POST", "/", None, b"", 400, "expected JSON: Expecting value"),
        ("POST", "/", None, b"[" * 65 + b"]" * 65, 400, "nested more deeply than Limits.depth"),
        ("POST", "/", None, b"[" * 500_000, 400, "more than 100000 values"),
    ],
)
def test_what_is_refused(serve, client, method, path, content_type, body, status, error):
    headers = {"content-type": content_type} if content_type else {}
    reply = client(serve()).request(method, path, content=body, headers=headers)
    assert reply.status_code == status
    assert error in reply.json()["error"]
    if status == 405:
        assert reply.headers["allow"] == error.removeprefix("expected ").removesuffix(
            " at this path"
        )


def test_a_compressed_body_is_refused(serve, client):
    reply = client(serve()).post("/", content=b"1", headers={"content-encoding": "gzip"})
    assert (reply.status_code, reply.json()) == (
        415,
        {"error": "expected an uncompressed body"},
    )


def test_a_handler_refuses(serve, client):
    def refuse(call):
        raise WebError(409, "not now", ((b"retry-after", b"7"),))

    reply = client(serve(Route("/", {"GET": refuse}))).get("/")
    assert (reply.status_code, reply.json()) == (409, {"error": "not now"})
    assert reply.headers["retry-after"] == "7"


@pytest.mark.parametrize("error", [KeyError("secret"), SystemExit(3), StopIteration(1)])
def test_a_mistake_is_logged_and_not_sent(serve, client, caplog, error):
    def fail(call):
        raise error

    async def fail_on_loop(call):
        raise error

    routes = [Route("/", {"GET": fail}), Route("/loop", {"GET": fail_on_loop})]
    http = client(serve(*routes))
    for path in ("/", "/loop") if isinstance(error, KeyError) else ("/",):
        with caplog.at_level(logging.ERROR):
            reply = http.get(path)
        assert reply.status_code == 500
        assert reply.json() == {"error": "internal server error; see the server's log"}
        assert "in fail" in caplog.text
        caplog.clear()
    assert http.get("/health").status_code == 200


def test_a_value_that_json_does_not_have_is_a_mistake(serve, client, caplog):
    reply = client(serve(Route("/", {"GET": lambda call: {1, 2}}))).get("/")
    assert reply.status_code == 500


def test_a_blocking_handler_holds_up_no_other_request(serve, client):
    server = serve()
    slow = threading.Thread(target=client(server).post, args=("/gate",))
    slow.start()
    while not server.app.running:
        time.sleep(0.01)
    assert client(server).post("/", json=1).json() == 1
    assert slow.is_alive()
    server.gate.set()
    slow.join()


def test_beyond_the_pool_the_reply_is_503(serve, client):
    server = serve(handler_threads=1, waiting_requests=1)
    replies = []
    callers = [
        threading.Thread(target=lambda: replies.append(client(server).post("/gate").status_code))
        for _ in range(2)
    ]
    for caller in callers:
        caller.start()
    while server.app.running < 2:
        time.sleep(0.01)
    reply = client(server).post("/", json=1)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert reply.json() == {"error": "all handlers are busy; try again later"}
    # What needs no thread is answered.
    assert client(server).post("/loop", json=1).json() == 1
    server.gate.set()
    for caller in callers:
        caller.join()
    assert replies == [200, 200]
    assert client(server).post("/", json=1).json() == 1


def test_a_thread_that_cannot_start_takes_no_place_from_later_requests(serve, client, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    http = client(serve(handler_threads=1, waiting_requests=1))
    assert http.get("/health").is_success
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert [http.post("/", json=1).status_code for _ in range(3)] == [500, 500, 500]
    assert http.post("/", json=1).json() == 1


def test_two_routes_of_one_path_are_refused():
    route = Route("/", {})
    with pytest.raises(ValueError, match=r"one route for each path, got several for \['/'\]"):
        build_app([route, route])
    with pytest.raises(ValueError, match=r"got several for \['/ready'\]"):
        build_app([Route("/ready", {})])


def test_ready_is_what_the_owner_says(serve, client):
    server = serve(ready=False)
    http = client(server)
    reply = http.get("/ready")
    assert (reply.status_code, reply.json()) == (503, {"status": "not ready"})
    assert http.get("/health").json() == {"status": "alive"}
    server.app.ready = True
    assert http.get("/ready").json() == {"status": "ready"}
