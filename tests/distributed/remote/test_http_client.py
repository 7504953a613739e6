from __future__ import annotations

import socket
import threading

import pytest
from answering import Answering, reply
from waiting import until

from parllel.distributed.remote.http_client import HttpClient, HttpError

BODY = b'{"action": 1}'
HEADS = {
    "kept": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY),
    "closed": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY),
    "without a length": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
    "old": b"HTTP/1.0 200 OK\r\n\r\n",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_replies_are_read_however_the_connection_ends(head):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                # The body comes later than the headers, which say that the connection ends.
                connection.sendall(head)
                connection.sendall(BODY)

        answering = threading.Thread(target=answer)
        answering.start()
        with HttpClient(f"http://127.0.0.1:{server.getsockname()[1]}/") as client:
            status, _, body = client.post(b"{}", {}, 20.0)
        answering.join()
    assert (status, body) == (200, BODY)


def test_a_name_that_nobody_resolves_costs_no_more_than_the_deadline(monkeypatch):
    # Whether name servers answer is not for a test to choose, so the system's function is held up.
    answered, asked = threading.Event(), []
    look_up = socket.getaddrinfo

    def slow(host, *args, **more):
        asked.append(host)
        assert answered.wait(60)
        return look_up("127.0.0.1", *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with Answering(lambda body: reply('{"action": 2}')) as server:
        url = f"http://agent.of-this-test.example:{server.port}/"
        with HttpClient(url) as client:
            for _ in range(3):
                with pytest.raises(TimeoutError, match=r"no reply within 0\.2 s"):
                    client.post(b"{}", {}, 0.2)
            # One thread waits, however often it is asked.
            assert asked == ["agent.of-this-test.example"]
            answered.set()
            assert client.post(b"{}", {}, 60.0)[0] == 200
    until(lambda: not any(thread.name == "look-up" for thread in threading.enumerate()))


def test_a_name_without_an_address_is_an_error():
    with (
        HttpClient("http://no-such-host.invalid/") as client,
        pytest.raises(HttpError, match="cannot be reached"),
    ):
        client.post(b"{}", {}, 60.0)
