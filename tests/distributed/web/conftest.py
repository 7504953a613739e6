from __future__ import annotations

import contextlib
import threading
import time

import httpx2
import pytest

from parllel.distributed.web import Route, ServerSettings, WebServer, build_app


def echo(call):
    return call.json()


async def echo_on_loop(call):
    return call.json()


def sleep(call):
    time.sleep(call.json())
    return "slept"


def routes(gate):
    return (
        Route("/", {"POST": echo, "GET": lambda call: call.query}),
        Route("/loop", {"POST": echo_on_loop}),
        Route("/sleep", {"POST": sleep}),
        # Answers, "passed", once the test has set `server.gate`.
        Route("/gate", {"POST": lambda call: "passed" if gate.wait(60) else "stuck"}),
    )


@pytest.fixture
def serve():
    """Return a function that starts a server with some settings; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def start(*given, ready=True, **settings):
            gate = threading.Event()
            app = build_app(given or routes(gate), ServerSettings(**settings), ready=ready)
            server = stack.enter_context(WebServer(app))
            server.gate = gate
            stack.callback(gate.set)
            return server

        yield start


@pytest.fixture
def client():
    """Return a function that makes a client of a server; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def connect(server, **arguments):
            defaults = {"base_url": server.url, "timeout": 60.0, "trust_env": False}
            return stack.enter_context(httpx2.Client(**{**defaults, **arguments}))

        yield connect
