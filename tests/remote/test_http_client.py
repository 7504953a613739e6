from __future__ import annotations

import socket
import threading

import pytest

from parllel.remote.http_client import HttpClient

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
