"""Clients that are slow, broken, greedy or gone."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
from raw_http import RawConnection, request

from parllel.distributed.web import Response, Route

CHUNKED = b"Transfer-Encoding: chunked"


def still_answers(server):
    with RawConnection(server) as other:
        other.send(request(b"[1]"))
        return other.reply() == (200, [1])


def await_quiet(server):
    limit = time.monotonic() + 10
    while server.app.running:
        assert time.monotonic() < limit
        time.sleep(0.01)


def trickle(connection, data, pause_s=0.05):
    """Send a byte at a time until the server has had enough."""
    with contextlib.suppress(ConnectionError):
        for byte in data:
            connection.send(bytes([byte]))
            time.sleep(pause_s)


@pytest.mark.parametrize(
    "begun",
    [b"", b"G", b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "],
    ids=["none", "one", "some"],
)
def test_slow_headers_end_at_the_deadline(serve, begun):
    server = serve(header_s=0.3)
    with RawConnection(server) as connection:
        connection.send(begun)
        trickle(connection, b"x" * 20 if begun else b"")
        assert connection.reply() == (408, {"error": "the header of the request took too long"})
        assert connection.is_closed()
    assert still_answers(server)


@pytest.mark.parametrize(
    "headers", [(b"Content-Length: 1000",), (CHUNKED,)], ids=["length", "chunked"]
)
@pytest.mark.parametrize("path", [b"/", b"/loop"])
def test_slow_bodies_end_at_the_deadline(serve, headers, path):
    server = serve(body_s=0.3)
    with RawConnection(server) as connection:
        connection.send(request(b"", *headers, path=path))
        trickle(connection, b"3e8\r\n" + b"1" * 20)
        assert connection.reply() == (408, {"error": "the body of the request took too long"})
        assert connection.is_closed()
    assert still_answers(server)
    await_quiet(server)


def test_the_deadline_of_headers_is_each_request_s_own(serve):
    server = serve(header_s=0.5)
    with RawConnection(server) as connection:
        for _ in range(4):
            connection.send(request(b"[1]"))
            assert connection.reply() == (200, [1])
            time.sleep(0.25)
        connection.send(b"P")
        assert connection.reply()[0] == 408


def test_an_idle_connection_is_closed(serve):
    with RawConnection(serve(idle_s=0.2)) as connection:
        connection.send(request(b"[1]"))
        assert connection.reply() == (200, [1])
        assert connection.is_closed()


def test_a_working_connection_is_not(serve):
    with RawConnection(serve(header_s=0.2, body_s=0.2, idle_s=0.2, write_s=0.2)) as connection:
        connection.send(request(b"1.0", path=b"/sleep"))
        assert connection.reply() == (200, "slept")


def test_a_client_that_does_not_read_is_let_go(serve):
    server = serve(Route("/", {"GET": lambda call: Response(bytes(1 << 24))}), write_s=0.3)
    with RawConnection(server) as connection:
        connection.send(request(method=b"GET"))
        time.sleep(1.5)
        received = 0
        with contextlib.suppress(ConnectionError):
            while part := connection.socket.recv(1 << 20):
                received += len(part)
        assert received < 1 << 24


def test_replies_that_nobody_reads_are_not_made(serve):
    called = []
    server = serve(Route("/", {"GET": lambda call: called.append(1) or Response(bytes(1 << 24))}))
    with RawConnection(server) as connection:
        connection.send(*[request(method=b"GET")] * 20)
        while not called:
            time.sleep(0.01)
        time.sleep(0.5)
        assert len(called) < 3
        # All are, for a client that reads on.
        received = 0
        while received < 20 << 24:
            received += len(connection.socket.recv(1 << 20))
        assert len(called) == 20


def test_a_reply_that_cannot_be_sent_is_logged_and_ends_the_connection(serve, caplog):
    server = serve(Route("/", {"GET": lambda call: Response(b"", headers=((b"x", b"a\r\nb"),))}))
    with RawConnection(server) as connection:
        connection.send(request(method=b"GET"))
        assert connection.is_closed()
    assert "a reply to GET could not be sent" in caplog.text


def test_what_follows_the_last_request_is_nothing(serve):
    server = serve()
    with RawConnection(server) as connection:
        connection.send(request(b"", b"Connection: close", path=b"/gate"))
        while not server.app.running:
            time.sleep(0.01)
        connection.send(b"\r\nwhat is this?")
        server.gate.set()
        assert connection.reply() == (200, "passed")


def test_announced_bodies_are_refused_before_they_are_sent(serve):
    with RawConnection(serve(max_body_bytes=100)) as connection:
        connection.send(request(b"", b"Content-Length: 101"))
        expected = {"error": "expected a body of at most 100 bytes (--max-body-bytes)"}
        assert connection.reply() == (413, expected)
        # Bytes on their way are thrown away, and the connection can be used on.
        connection.send(b"x" * 101, request(b"1"))
        assert connection.reply() == (200, 1)


def test_a_client_that_asks_first_is_refused_and_closed(serve):
    with RawConnection(serve(max_body_bytes=100)) as connection:
        connection.send(request(b"", b"Content-Length: 101", b"Expect: 100-continue"))
        assert connection.reply()[0] == 413
        assert connection.is_closed()


def test_a_client_that_asks_first_may_send(serve):
    with RawConnection(serve()) as connection:
        connection.send(request(b"", b"Content-Length: 3", b"Expect: 100-continue"))
        assert connection.socket.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.send(b"[1]")
        assert connection.reply() == (200, [1])


@pytest.mark.parametrize("parts", [1, 50])
def test_chunked_bodies_are_refused_where_they_exceed_the_limit(serve, parts):
    server = serve(max_body_bytes=10_000)
    chunk = b"%x\r\n%s\r\n" % (12_000 // parts, b"1" * (12_000 // parts))
    with RawConnection(server) as connection:
        connection.send(request(chunk * parts, CHUNKED))
        assert connection.reply()[0] == 413
    with RawConnection(server) as connection:
        connection.send(request(b"3\r\n[1]\r\n0\r\n\r\n", CHUNKED))
        assert connection.reply() == (200, [1])


def test_a_body_in_tiny_parts_is_refused(serve):
    server = serve()
    with RawConnection(server) as connection, contextlib.suppress(ConnectionError):
        connection.send(request(b"1\r\n1\r\n" * 5000, CHUNKED))
        assert connection.reply() == (400, {"error": "expected an HTTP/1.1 request"})
        assert connection.is_closed()
    assert still_answers(server)


def test_a_half_closed_body_is_given_up(serve):
    server = serve(body_s=30.0)
    with RawConnection(server) as connection:
        connection.send(request(b"1234", b"Content-Length: 10"))
        connection.half_close()
        assert connection.is_closed()
    assert still_answers(server)
    await_quiet(server)


def test_a_whole_request_before_a_half_close_is_answered(serve):
    server = serve()
    with RawConnection(server) as connection:
        connection.send(request(path=b"/gate"))
        while not server.app.running:
            time.sleep(0.01)
        connection.half_close()
        server.gate.set()
        assert connection.reply() == (200, "passed")
        assert connection.is_closed()


def test_pipelined_requests_are_answered_in_their_order(serve):
    with RawConnection(serve()) as connection:
        connection.send(*(request(b"%d" % number) for number in range(50)))
        assert [connection.reply() for _ in range(50)] == [(200, number) for number in range(50)]


def test_a_client_that_leaves_before_the_reply_costs_nothing(serve, caplog):
    server = serve()
    for _ in range(5):
        with RawConnection(server) as connection:
            connection.send(request(b"0.2", path=b"/sleep"))
    await_quiet(server)
    assert still_answers(server)
    assert not caplog.records


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Name: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_gets_a_400(serve, data):
    server = serve()
    with RawConnection(server) as connection:
        connection.send(data)
        assert connection.reply() == (400, {"error": "expected an HTTP/1.1 request"})
        assert connection.is_closed()
    assert still_answers(server)


@pytest.mark.parametrize("path", [b"/", b"/loop", b"/none"])
def test_a_body_of_two_lengths_hides_no_request(serve, path):
    called = []
    server = serve(
        Route("/", {"POST": lambda call: called.append(call.path)}),
        Route("/hidden", {"GET": lambda call: called.append(call.path)}),
    )
    hidden = request(method=b"GET", path=b"/hidden")
    length = b"Content-Length: %d" % (len(b"0\r\n\r\n") + len(hidden))
    with RawConnection(server) as connection:
        connection.send(request(b"0\r\n\r\n", length, CHUNKED, path=path), hidden)
        expected = {"error": "expected Content-Length or Transfer-Encoding, got both"}
        assert connection.reply() == (400, expected)
        assert connection.is_closed()
    assert not called


def test_a_wrong_body_after_head_gets_a_400_without_one(serve, caplog):
    with RawConnection(serve()) as connection:
        connection.send(request(b"zz\r\n", CHUNKED, method=b"HEAD", path=b"/"))
        received = b""
        while part := connection.socket.recv(65536):
            received += part
    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert received.endswith(b"\r\n\r\n")
    assert not caplog.records


def test_beyond_the_most_connections_the_idle_make_room(serve):
    server = serve(max_connections=3)
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(RawConnection(server)) for _ in range(2)]
        for connection in busy:
            connection.send(request(path=b"/gate"))
        idle = stack.enter_context(RawConnection(server))
        idle.send(request(b"[1]"))
        assert idle.reply() == (200, [1])
        fourth = stack.enter_context(RawConnection(server))
        fourth.send(request(path=b"/gate"))
        assert idle.is_closed()
        while server.app.running < 3:
            time.sleep(0.01)
        fifth = stack.enter_context(RawConnection(server))
        assert fifth.reply() == (503, {"error": "too many connections; try again later"})
        assert fifth.is_closed()
        server.gate.set()
        assert [one.reply() for one in (*busy, fourth)] == [(200, "passed")] * 3
    assert still_answers(server)


@pytest.mark.parametrize("begun", [b"", request(b"", CHUNKED)], ids=["silent", "body"])
def test_silent_connections_of_one_client_starve_no_other(serve, begun):
    server = serve(header_s=60.0, body_s=60.0)
    with contextlib.ExitStack() as stack:
        early = stack.enter_context(RawConnection(server, client="127.0.0.2"))
        early.send(request(b"[0]"))
        assert early.reply() == (200, [0])
        for _ in range(400):
            stack.enter_context(RawConnection(server)).send(begun)
        for number in range(20):
            late = stack.enter_context(RawConnection(server, client="127.0.0.3"))
            late.send(request(b"%d" % number))
            assert late.reply() == (200, number)
        early.send(request(b"[1]"))
        assert early.reply() == (200, [1])
        # Nor themselves: the oldest make room.
        assert still_answers(server)


def test_replies_leave_at_once(serve):
    with RawConnection(serve()) as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.send(request(b"[1]"))
        # Head and body in one packet: Nagle's algorithm would hold the second one back for 40 ms.
        assert connection.socket.recv(65536).endswith(b"\r\n\r\n[1]")
