"""Whatever is sent over REST and WebSocket: no error of the server, and afterwards it plays as before."""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections import Counter
from urllib.parse import urlsplit

import pytest
from fuzzed_requests import fuzzed_body, fuzzed_requests, send_fuzzed
from private_memory import private_memory
from rest_and_socket import BASELINE, FrameReader, RestServer
from websockets.exceptions import ConnectionClosed

MAX_GROWTH = 8 << 20
OWN, AFTER = ("a", "b"), ("after-1", "after-2")
WISHES = {
    "cards": {"operator": {**BASELINE, "operator_id": "c", "settings": {}, "max_steps": 9}},
    "remove": {"card": "c"},
    "restart": {"card": "c"},
    "reset": {"seed": 3, "cards": ["a", "b"]},
    "step": {"cards": ["a"]},
    "play": {"cards": ["b"], "autoplay": True},
    "stop": {},
    "speed": {"steps_per_s": 50.0},
    "act": {"card": "a", "number": 1, "action": 0},
    "watch": {"script": "none.py"},
    "unwatch": {},
    "frame?card=a": {},
    "results?run=board": {},
}
GAME = {
    "game": {
        "operator_id": "g",
        "env_id": "pettingzoo/classic/rps_v2",
        "players": {
            "player_0": {"operator_type": "baseline", "operator_id": "p", "policy": "random"},
            "player_1": {"operator_type": "baseline", "operator_id": "q", "policy": "noop"},
        },
    }
}
MESSAGES = [{"type": "look", "cards": ["a", "b"]}, {"type": "seen", "card": "a", "number": 1}]


def requests_of(seed, n, token):
    pairs = [*WISHES.items(), ("cards", GAME)]
    return fuzzed_requests(
        seed,
        n,
        [json.dumps(body).encode() for _, body in pairs],
        b"application/json",
        token.encode(),
        paths=[b"/api/" + name.encode() for name, _ in pairs],
    )


def send_messages(served, seed, n):
    """Send messages over WebSockets, a few over each; return the codes that these were closed with."""
    rng, codes, sent = random.Random(seed), Counter(), 0
    while sent < n:
        with served.socket() as page:
            try:
                for _ in range(rng.randrange(1, 8)):
                    sent += 1
                    page.send(_message(rng))
                page.send(b"the end")
                while True:
                    page.recv(timeout=30)
            except ConnectionClosed as closed:
                codes[closed.rcvd.code] += 1
    return codes


def _message(rng):
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(200))
    body = fuzzed_body(rng, json.dumps(rng.choice(MESSAGES)).encode())
    return body.decode("utf-8", "replace")


def send_frames(served, seed, n):
    """Send bytes that are hardly frames, after a right handshake, and wait for the end."""
    rng, address = random.Random(seed), urlsplit(served.base_url)
    lines = [
        "GET /api/ws HTTP/1.1",
        f"Host: {address.netloc}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Authorization: Bearer {served.token}",
    ]
    for _ in range(n):
        with (
            socket.create_connection((address.hostname, address.port), 30) as connection,
            contextlib.suppress(ConnectionError),
        ):
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            first = rng.choice((0x81, 0x82, 0x01, 0x80, 0x88, 0x89, 0x8A, 0xC1, 0x83, 0xFF))
            length = rng.choice((0x80, 0x85, 0x05, 0xFE, 0xFF, 0x7E))
            connection.sendall(bytes([first, length]) + rng.randbytes(rng.randrange(300)))
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while part := connection.recv(65536):
                received += part
            assert received.startswith(b"HTTP/1.1 101 "), received[:200]


def tidy(served, kept):
    """Take away all other cards, some of which were launched by chance."""
    served.wish("stop")
    for card in served.state()["cards"]:
        if card["id"] not in kept:
            served.wish("remove", card=card["id"])


def fuzz(folder, seed, n):
    statuses, codes = Counter(), Counter()
    with RestServer(folder) as served:
        for card in OWN:
            served.launch(card, max_steps=30)
        before = 0
        for part in range(11):
            statuses.update(
                send_fuzzed(served.base_url, requests_of(seed + part, n // 20, served.token))
            )
            codes.update(send_messages(served, seed + part, n * 7 // 200))
            send_frames(served, seed + part, n * 3 // 200)
            tidy(served, OWN)
            before = before or private_memory(served.process.pid)  # the first part warms up
        growth = private_memory(served.process.pid) - before
        tidy(served, ())
        for card in AFTER:
            served.launch(card, max_steps=30)
        served.wish("reset", seed=5)
        served.await_status("ready")
        with served.socket() as page:
            reader = FrameReader(page, list(AFTER))
            served.wish("speed", steps_per_s=None)
            served.wish("play", autoplay=False)
            while reader.state is None or any(
                c["status"] != "ended" for c in reader.state["cards"]
            ):
                reader.take()
        status, errors = served.terminate()
    print(dict(statuses), dict(codes), f"{growth / 2**20:+.2f} MiB")
    # Nothing on standard error: each line there is a mistake that was logged.
    assert (status, errors) == (0, "")
    assert growth < MAX_GROWTH
    return statuses, codes


def test_a_few_hundred(tmp_path):
    statuses, codes = fuzz(tmp_path, 0, 600)
    # It is not all refused by the first check.
    assert statuses[200] > 10
    assert statuses[400] > 20
    assert {404, 405, 409, 413, 415, 421} & set(statuses)
    assert codes[1008] > 5
    assert codes[1003]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_thousand_messages(tmp_path):
    fuzz(tmp_path, 1000, 10_000)
