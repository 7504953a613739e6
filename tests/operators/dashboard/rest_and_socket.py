"""The command `parllel operators dashboard` in a process of its own, and clients that have its token."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter

import httpx2
from websockets.sync.client import connect

BASELINE = {"operator_type": "baseline", "policy": "random", "env_id": "CartPole-v1"}


class ServedBoard:
    """A dashboard's process, as a context; killed at the end unless `end` was called.

    Args:
        arguments: of the command.
    """

    def __init__(self, *arguments, port=0, **options):
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "parllel.cli", "operators", "dashboard", "--port"),
                *map(str, (port, *arguments)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        said = [self.process.stdout.readline(), self.process.stdout.readline()]
        if not said[1]:
            raise AssertionError(self.process.communicate()[1])
        self.folder = said[0].strip().removeprefix("board: ")
        self.login_url = said[1].strip().removeprefix("serving on ")
        self.url, self.token = self.login_url.split("/?token=")
        self.headers = {"Authorization": f"Bearer {self.token}"}
        self.rest = httpx2.Client(
            base_url=self.url, headers=self.headers, timeout=60.0, trust_env=False
        )

    def socket(self, **arguments):
        """Return what opens a WebSocket, a context."""
        url = "ws" + self.url.removeprefix("http") + "/api/ws"
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

    def state_where(self, true_of, timeout_s=40):
        """Wait for a state, and return it."""
        limit = time.monotonic() + timeout_s
        while not true_of(state := self.state()):
            assert time.monotonic() < limit, state
            time.sleep(0.02)
        return state

    def end(self, timeout_s=60):
        """Send SIGTERM; return the exit status, and what was said on standard error."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, errors

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.rest.close()
        self.process.kill()
        self.process.communicate()


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
