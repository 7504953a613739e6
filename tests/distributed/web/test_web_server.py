"""How a server starts and ends, in a thread and in the foreground."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import httpx2
import pytest
from raw_http import RawConnection, request
from served import Served

from parllel.distributed.web import Route, WebServer, build_app
from parllel.errors import ClosedError, WrongStateError

SCRIPT = Path(__file__).parent / "serve_script.py"


def test_it_ends_once_and_for_all(serve, client):
    server = serve()
    assert repr(server) == f"WebServer({server.url}, serving)"
    with pytest.raises(
        WrongStateError, match=r"the server at http://127\.0\.0\.1:\d+ has already been st"
    ):
        server.start()
    server.close()
    server.close()
    assert repr(server) == f"WebServer({server.url}, closed)"
    with pytest.raises(ClosedError, match="has been closed; create a new one"):
        server.start()
    with pytest.raises(httpx2.ConnectError):
        client(server).get("/health")


def test_one_that_never_started_is_closed():
    server = WebServer(build_app([]))
    assert repr(server).endswith("bound)")
    server.close()
    with pytest.raises(ClosedError, match="has been closed"), server:
        pass


def test_the_last_requests_are_answered(serve, client):
    server = serve(end_s=20.0)
    replies = []
    slow = threading.Thread(target=lambda: replies.append(client(server).post("/gate").json()))
    slow.start()
    while not server.app.running:
        time.sleep(0.01)
    late, idle = client(server), client(server)
    assert idle.get("/ready").is_success
    closing = threading.Thread(target=server.close)
    closing.start()
    while not server.app.ending:
        time.sleep(0.01)
    assert late.get("/health").json() == {"status": "alive"}
    reply = late.get("/ready")
    assert (reply.status_code, reply.json()) == (503, {"status": "ending"})
    reply = late.post("/", json=1)
    assert (reply.status_code, reply.json()) == (503, {"error": "the server is shutting down"})
    assert reply.headers["connection"] == "close"
    server.gate.set()
    closing.join()
    slow.join()
    assert replies == ["passed"]


def test_a_handler_that_does_not_return_is_waited_for_so_long(serve):
    release = threading.Event()
    server = serve(Route("/", {"GET": lambda call: release.wait(20)}), end_s=0.2)
    try:
        with RawConnection(server) as connection:
            connection.send(request(method=b"GET"))
            while not server.app.running:
                time.sleep(0.01)
            server.close()
            expected = {"error": "the server shut down before the reply was ready"}
            assert connection.reply() == (503, expected)
            assert connection.is_closed()
    finally:
        release.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(number):
    with Served(SCRIPT) as served:
        replies = []
        slow = threading.Thread(
            target=lambda: replies.append(httpx2.post(f"{served.url}/sleep", json=1.0).json())
        )
        slow.start()
        while httpx2.get(f"{served.url}/running").json() < 2:
            time.sleep(0.02)
        served.process.send_signal(number)
        assert served.end() == (0, "ended\n", "")
        slow.join()
        assert replies == ["slept"]


def test_a_second_signal_does_not_wait():
    with Served(SCRIPT) as served:
        slow = threading.Thread(
            target=lambda: httpx2.post(f"{served.url}/sleep", json=60.0, timeout=90)
        )
        slow.start()
        while httpx2.get(f"{served.url}/running").json() < 2:
            time.sleep(0.02)
        served.process.terminate()
        while httpx2.get(f"{served.url}/ready").status_code != 503:
            time.sleep(0.02)
        served.process.send_signal(signal.SIGINT)
        status, out, _ = served.end()
        assert (status, out) == (0, "ended\n")
        slow.join()


def test_sigkill_leaves_the_port_free():
    with Served(SCRIPT) as served:
        assert httpx2.get(f"{served.url}/health").is_success
        os.kill(served.process.pid, signal.SIGKILL)
        served.end()
        with Served(SCRIPT, served.url.rsplit(":", 1)[1]) as again:
            assert again.url == served.url
            assert httpx2.get(f"{again.url}/health").is_success


def test_close_from_another_thread_ends_the_foreground(serve):
    server = WebServer(build_app([]))
    closing = threading.Thread(target=server.close)
    server.run(started=closing.start)
    closing.join()
    assert repr(server).endswith("closed)")


def test_close_from_another_thread_before_there_is_a_loop_ends_the_foreground(monkeypatch):
    server, run, started = WebServer(build_app([])), asyncio.run, []

    def close_and_run(serving):
        closing = threading.Thread(target=server.close)
        closing.start()
        closing.join()
        return run(serving)

    monkeypatch.setattr(asyncio, "run", close_and_run)
    server.run(started=lambda: started.append(True))
    assert started == []  # it accepted no requests
    assert repr(server).endswith("closed)")


def test_handlers_of_signals_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    server = WebServer(build_app([]))
    server.run(started=lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
