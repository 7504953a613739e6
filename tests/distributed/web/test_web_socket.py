"""WebSockets: accepted by the same rules as requests, held to limits, and closed in order."""

from __future__ import annotations

import asyncio
import contextlib
import socket as sockets
import threading
import time

import pytest
from raw_http import RawConnection, request
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from parllel.distributed.web import Route, ServerSettings, SocketRoute, WebServer, build_app

TOKEN = "a-token-of-some-length"
HANDSHAKE = (
    b"Upgrade: websocket",
    b"Connection: Upgrade",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


def handshake(path=b"/ws", headers=HANDSHAKE, host=b"localhost"):
    """Return the bytes of a request for a WebSocket."""
    lines = [b"GET " + path + b" HTTP/1.1", b"Host: " + host, *headers, b"", b""]
    return b"\r\n".join(lines)


async def echo(socket):
    async for message in socket:
        if message == "fail":
            raise RuntimeError("a mistake")
        if message == "leave":
            return
        await socket.send(message)


async def flood(socket):
    """Send as much as is taken; leave the number of messages that were."""
    flood.sent = 0
    while True:
        await socket.send(bytes(100_000))
        flood.sent += 1


async def careful(socket):
    """Send as much as is taken; leave the number of messages that the client is known to have."""
    careful.confirmed = 0
    while True:
        await socket.send(bytes(1000))
        await socket.confirm()
        careful.confirmed += 1


async def deaf(socket):
    await asyncio.sleep(60)


@pytest.fixture
def serve_sockets():
    """Return a function that starts a server with some settings; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def start(**settings):
            app = build_app(
                [Route("/", {"POST": lambda call: call.json()})],
                ServerSettings(**settings),
                sockets=[
                    SocketRoute("/ws", echo),
                    SocketRoute("/flood", flood),
                    SocketRoute("/careful", careful),
                    SocketRoute("/deaf", deaf),
                ],
            )
            return stack.enter_context(WebServer(app))

        yield start


def opened(server, path="/ws", **arguments):
    arguments = {"open_timeout": 20, "close_timeout": 20, "proxy": None, **arguments}
    return connect("ws" + server.url.removeprefix("http") + path, **arguments)


def closed_with(socket, timeout_s=20):
    try:
        while True:
            socket.recv(timeout=timeout_s)
    except ConnectionClosed as closed:
        return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else None


def await_no_sockets(server):
    limit = time.monotonic() + 20
    while server.app.sockets:
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_messages_go_both_ways_beside_requests(serve_sockets):
    server = serve_sockets()
    with opened(server) as first, opened(server) as second:
        for message in ("text é", b"\x00\xff", "", b"", "x" * 60_000):
            first.send(message)
            assert first.recv(timeout=20) == message
        first.send(["in ", "three ", "parts"])
        assert first.recv(timeout=20) == "in three parts"
        second.send("2")
        assert second.recv(timeout=20) == "2"
        with RawConnection(server) as connection:
            connection.send(request(b"[1]"))
            assert connection.reply() == (200, [1])
        assert first.ping().wait(20)
    await_no_sockets(server)


def test_a_handler_that_returns_closes_it(serve_sockets):
    with opened(serve_sockets()) as socket:
        socket.send("leave")
        assert closed_with(socket) == (1000, "")


def test_a_mistake_of_a_handler_stays_on_the_server(serve_sockets, caplog):
    server = serve_sockets()
    with opened(server) as socket:
        socket.send("fail")
        assert closed_with(socket) == (1011, "internal server error; see the server's log")
    assert "a mistake" in caplog.text
    with opened(server) as socket:
        socket.send("1")
        assert socket.recv(timeout=20) == "1"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong-token-of-some-length"}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_it_is_guarded_as_requests_are(serve_sockets, headers, status):
    server = serve_sockets(token=TOKEN)
    with pytest.raises(InvalidStatus, match=str(status)):
        opened(server, additional_headers=headers)
    with opened(server, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as socket:
        socket.send("1")
        assert socket.recv(timeout=20) == "1"


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        (b"/ws", (), (426, "expected a WebSocket handshake at this path")),
        (b"/", HANDSHAKE, (404, "no WebSocket is served at this path")),
        (b"/ws", HANDSHAKE[:2], (400, "expected a WebSocket handshake")),
        (b"/ws", (*HANDSHAKE[:2], b"Sec-WebSocket-Version: 8"), (400, None)),
        (b"/ws", (*HANDSHAKE, b"Content-Length: 3"), (400, None)),
        (b"/ws", (*HANDSHAKE, b"Host: evil.example"), (400, None)),
        (b"/ws", (*HANDSHAKE, b"X: " + b"x" * 9000), (400, None)),
    ],
)
def test_what_is_no_handshake_is_refused(serve_sockets, path, headers, expected):
    server = serve_sockets()
    with RawConnection(server) as connection:
        connection.send(handshake(path, headers))
        status, values = connection.reply()
    assert status == expected[0]
    assert expected[1] is None or values == {"error": expected[1]}


def test_a_server_that_is_called_by_another_name_refuses(serve_sockets):
    server = serve_sockets()
    with RawConnection(server) as connection:
        connection.send(handshake(host=b"evil.example"))
        assert connection.reply()[0] == 421


def test_there_are_at_most_so_many(serve_sockets):
    server = serve_sockets(max_sockets=2)
    with opened(server), opened(server):
        with pytest.raises(InvalidStatus, match="503"):
            opened(server)
        with RawConnection(server) as connection:
            connection.send(request(b"[1]"))
            assert connection.reply() == (200, [1])
    await_no_sockets(server)
    with opened(server) as socket:
        socket.send("1")
        assert socket.recv(timeout=20) == "1"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\xfe\x13\x88" + bytes(4) + b"x" * 5000, 1009),  # 5,000 bytes
        (b"\x01\xfe\x03\xe8" + bytes(4) + b"x" * 1000 + b"\x80\xfe\x03\xe8" + bytes(4), 1009),
        (b"\x81\x82" + bytes(4) + b"\xff\xfe", 1007),  # text that is no UTF-8
        (b"\x81\x02no", 1002),  # not masked
        (b"\x83\x80" + bytes(4), 1002),  # an opcode that there is not
        (b"\x80\x80" + bytes(4), 1002),  # the rest of nothing
        (b"\xc1\x80" + bytes(4), 1002),  # a reserved bit
        (b"\x01\x80" + bytes(4) + b"\x00\x80\x00\x00\x00\x00" * 2000, 1008),  # empty parts
        (b"\x88\x81" + bytes(4) + b"x", 1002),  # a code of one byte
    ],
)
def test_wrong_frames_close_it_with_a_reason(serve_sockets, data, code, caplog):
    server = serve_sockets(max_message_bytes=1500)
    with RawConnection(server) as connection:
        connection.send(handshake())
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.socket.recv(65536)
        connection.send(data)
        frames = received.partition(b"\r\n\r\n")[2]
        while part := connection.socket.recv(65536):
            frames += part
    assert frames[0] == 0x88
    assert int.from_bytes(frames[2:4], "big") == code
    await_no_sockets(server)
    assert not caplog.records


def test_a_client_that_does_not_read_is_waited_for_and_then_dropped(serve_sockets):
    server = serve_sockets(write_s=0.5)
    with RawConnection(server) as connection:
        connection.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 10_000)
        connection.send(handshake(b"/flood"))
        await_no_sockets_after_one(server)
    # As much as the system's buffers take, and not what the handler could have made.
    assert flood.sent < 200


def await_no_sockets_after_one(server):
    limit = time.monotonic() + 20
    while not server.app.sockets:
        assert time.monotonic() < limit
        time.sleep(0.01)
    await_no_sockets(server)


def test_a_client_that_answers_no_ping_is_dropped(serve_sockets):
    server = serve_sockets(ping_s=0.3)
    with opened(server, ping_interval=None) as live, RawConnection(server) as connection:
        connection.send(handshake())
        with contextlib.suppress(ConnectionError):
            while connection.socket.recv(65536):
                pass
        time.sleep(0.5)
        # Its library answers pings.
        live.send("1")
        assert live.recv(timeout=20) == "1"


def test_what_is_confirmed_has_been_taken(serve_sockets):
    server = serve_sockets()
    # Its library reads no more than it has room for, perhaps not even the answer to its close; it answers
    # pings as it reads.
    with opened(server, "/careful", max_queue=1, close_timeout=1) as socket:
        n = 0
        for _ in range(20):
            socket.recv(timeout=20)
            n += 1
            time.sleep(0.01)
            assert careful.confirmed <= n + 3
        # Pongs that answer nothing confirm nothing.
        for data in (b"", b"\xff" * 8, b"x"):
            socket.pong(data)
        socket.recv(timeout=20)
        assert careful.confirmed <= n + 4
    await_no_sockets(server)


def test_messages_wait_until_they_are_taken(serve_sockets):
    server = serve_sockets()
    with RawConnection(server) as connection:
        connection.send(handshake(b"/deaf"))
        connection.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            # 24 MB: more than the few messages held and all that the system's buffers take.
            for _ in range(400):
                connection.send(b"\x82\xfe\xea\x60" + bytes(4) + bytes(60_000))
            pytest.fail("all was read, though nothing is taken")


def test_the_end_of_the_server_closes_it_with_1001(serve_sockets):
    server = serve_sockets()
    with opened(server) as echoed, opened(server, "/deaf") as deaf_one:
        ends = []
        readers = [
            threading.Thread(target=lambda one=one: ends.append(closed_with(one)), daemon=True)
            for one in (echoed, deaf_one)
        ]
        for reader in readers:
            reader.start()
        server.close()
        for reader in readers:
            reader.join(20)
    assert ends == [(1001, "the server is shutting down")] * 2


def test_a_client_that_leaves_ends_the_handler(serve_sockets, caplog):
    server = serve_sockets()
    with opened(server, "/flood") as flooded, opened(server, "/deaf") as deaf_one:
        flooded.recv(timeout=20)
        for one in (flooded, deaf_one):
            one.socket.shutdown(sockets.SHUT_RDWR)
        await_no_sockets(server)
    # What the client's library says of its own shutdown depends on what it was doing.
    assert not [record for record in caplog.records if record.name != "websockets.client"]


def test_no_two_routes_share_a_path():
    with pytest.raises(ValueError, match=r"one route for each path, got several for \['/ws'\]"):
        build_app([Route("/ws", {})], sockets=[SocketRoute("/ws", echo)])
