"""The measurements: rounds of all sides in turn."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from benchmarks.harness import turns
from benchmarks.harness.machine import cpu_s
from benchmarks.harness.turns import in_rounds
from benchmarks.remote.processes import (
    AGENT,
    Asker,
    kaggle_server,
    module,
    parllel_server,
    server,
)
from benchmarks.remote.questions import CONFIGURATION, observation
from benchmarks.remote.raw_client import RawClient
from parllel.distributed.wire import json_bytes, parse_json

N_SESSIONS = 64
OURS = {"json": "UrlAgent", "protobuf": "ProtobufAgent", "batch": "UrlAgent, batches of 64"}
KAGGLE = "kaggle-environments, UrlAgent"


@dataclass(frozen=True)
class Effort(turns.Effort):
    """How long to measure.

    Attributes:
        sessions: clients at the same time.
    """

    sessions: int = N_SESSIONS


FULL = Effort(10, 2.0)
QUICK = Effort(2, 0.2, 4)


def round_trips(effort: Effort, kaggle: Path | None) -> dict[str, list[float]]:
    """Return actions per second of one client, for each way to ask, a value for each round.

    kaggle: Python with kaggle-environments; None leaves it out.
    """
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(parllel_server())
        sides = {
            name: Asker([*module(sys.executable, "ask_parllel"), url, how])
            for how, name in OURS.items()
        }
        if kaggle is not None:
            theirs = stack.enter_context(kaggle_server(kaggle))
            sides[KAGGLE] = Asker([*module(kaggle, "ask_kaggle"), theirs])
        for side in sides.values():
            stack.callback(side.close)
        return in_rounds(effort.rounds, sides, lambda side: side.rate(effort.turn_s))


def session_spread(effort: Effort) -> dict[str, list[float]]:
    """Return latencies of many clients at once, each with a session and an agent's process of its own.

    Returns: seconds under "p50" and "p99", and requests per second under "rate", a value for each round.
    """
    with parllel_server("--max-sessions", str(effort.sessions + 1)) as url:
        names = [f"s{number}" for number in range(effort.sessions)]
        common = {"environment": "rps", "configuration": CONFIGURATION}
        made = [{**common, "action": "initialize_agents", "session": one} for one in names]
        for request in made:
            with RawClient(url, [json_bytes({**request, "agents": [str(AGENT)]})]) as client:
                client.once()
        state = {"observation": observation(1)}
        asked = [{**common, "action": "act", "session": one, "state": state} for one in names]
        with RawClient(url, [json_bytes(one) for one in asked]) as client:
            for reply in client.once():
                assert parse_json(reply) == {"action": 1}, reply
            client.run(effort.turn_s)
            return _spread(client, effort)


def _spread(client: RawClient, effort: Effort) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"p50": [], "p99": [], "rate": []}
    for _ in range(effort.rounds):
        took = client.run(effort.turn_s)
        centiles = quantiles(took, n=100)
        found["p50"].append(centiles[49])
        found["p99"].append(centiles[98])
        found["rate"].append(len(took) / effort.turn_s)
    return found


@dataclass(frozen=True)
class Echo:
    """An echo server that is asked by one client."""

    pid: int
    client: RawClient

    def cpu_per_request(self, seconds: float) -> float:
        """Return the CPU seconds that the server takes for a request."""
        before = cpu_s(self.pid)
        n = len(self.client.run(seconds))
        return (cpu_s(self.pid) - before) / n


@contextlib.contextmanager
def echo(kind: str, token: str) -> Iterator[Echo]:
    """Start an echo server of a kind, and a client."""
    request = {"action": "act", "environment": "rps", "configuration": CONFIGURATION}
    body = json_bytes({**request, "state": {"observation": observation(1)}})
    command = [*module(sys.executable, "echo_server"), kind, token]
    with (
        server(command) as (url, pid),
        RawClient(url, [body], [f"Authorization: Bearer {token}"]) as client,
    ):
        assert client.once() == [body]
        yield Echo(pid, client)


def guards(effort: Effort) -> dict[str, list[float]]:
    """Return CPU seconds per request of an echo, by the kind of server, a value for each round."""
    token = secrets.token_urlsafe()
    with contextlib.ExitStack() as stack:
        kinds = ("bare", "guarded", "threads")
        sides = {kind: stack.enter_context(echo(kind, token)) for kind in kinds}
        for side in sides.values():
            side.client.run(effort.turn_s)
        return in_rounds(effort.rounds, sides, lambda side: side.cpu_per_request(effort.turn_s))
