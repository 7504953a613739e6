"""A dashboard's process as a program uses it: over REST and WebSocket, with its token."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter

import httpx2
from dashboard_server import DashboardServer
from websockets.sync.client import connect

BASELINE = {"operator_type": "baseline", "policy": "random", "env_id": "CartPole-v1"}


class RestServer(DashboardServer):
    """A server, as a context, and a client of it.

    Attributes:
        base_url, token: the parts of `url`.
        rest: a client that has the token.
    """

    def __init__(self, folder, *arguments, port=0):
        super().__init__(folder, *arguments, port=port)
        self.base_url, self.token = self.url.split("/?token=")
        self.headers = {"Authorization": f"Bearer {self.token}"}
        self.rest = httpx2.Client(
            base_url=self.base_url,
            headers=self.headers,
            timeout=60.0,
            trust_env=False,
            # Or a test that shares it with others would leave a connection open.
            limits=httpx2.Limits(max_keepalive_connections=0),
        )

    def socket(self, **arguments):
        """Return what opens a WebSocket, a context."""
        url = "ws" + self.base_url.removeprefix("http") + "/api/ws"
        arguments = {"additional_headers": self.headers, "proxy": None, **arguments}
        return connect(url, **arguments)

    def wish(self, name, status=200, **fields):
        """Ask for something, and return the reply's values."""
        reply = self.rest.post(f"/api/{name}", json=fields)
        assert reply.status_code == status, reply.text
        return reply.json()

    def launch(self, operator_id, **fields):
        return self.wish("cards", operator={**BASELINE, "operator_id": operator_id, **fields})

    def state(self):
        reply = self.rest.get("/api/state")
        assert reply.status_code == 200, reply.text
        return reply.json()

    def cards_where(self, true_of, timeout_s=40):
        """Wait until a function is true of the state of each card, and return these by their ids."""
        limit = time.monotonic() + timeout_s
        cards = self.state()["cards"]
        while not all(true_of(card) for card in cards):
            assert time.monotonic() < limit, cards
            time.sleep(0.02)
            cards = self.state()["cards"]
        return {card["id"]: card for card in cards}

    def await_status(self, *statuses):
        """Wait until each card has one of some statuses, and return the cards by their ids."""
        return self.cards_where(lambda card: card["status"] in statuses)

    def terminate(self, number=signal.SIGTERM):
        """End it by a signal; return the exit status, and what was said on standard error."""
        self.process.send_signal(number)
        status, _, errors = self.end()
        return status, errors

    def __exit__(self, *error):
        self.rest.close()
        super().__exit__(*error)


class FrameReader:
    """What a page does with a WebSocket: look at cards, take states, and say which frames it has seen.

    Attributes:
        state: the newest.
        frames: how many came, by card.
        numbers: the last frame's, by card.
        most_missed: frames between two that came, by card.
    """

    def __init__(self, socket, cards):
        self._socket = socket
        self.state = None
        self.frames, self.numbers, self.most_missed = Counter(), {}, Counter()
        socket.send(json.dumps({"type": "look", "cards": cards}))

    def take(self, timeout_s=30.0):
        """Take one message; return the header and the bytes of a frame, or None for a state."""
        message = self._socket.recv(timeout=timeout_s)
        if isinstance(message, str):
            self.state = json.loads(message)
            return None
        length = int.from_bytes(message[:4], "big")
        header = json.loads(message[4 : 4 + length])
        card, number = header["card"], header["number"]
        last = self.numbers.get(card)
        if last is not None:
            assert number > last
            self.most_missed[card] = max(self.most_missed[card], number - last - 1)
        self.numbers[card] = number
        self.frames[card] += 1
        self._socket.send(json.dumps({"type": "seen", "card": card, "number": number}))
        return header, message[4 + length :]
