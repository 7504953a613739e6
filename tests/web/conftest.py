from __future__ import annotations

import contextlib
import time

import httpx2
import pytest

from parllel.web import Route, ServerSettings, WebServer, build_app


def echo(call):
    return call.json()


async def echo_on_loop(call):
    return call.json()


def sleep(call):
    time.sleep(call.json())
    return "slept"


ROUTES = (
    Route("/", {"POST": echo, "GET": lambda call: call.query}),
    Route("/loop", {"POST": echo_on_loop}),
    Route("/sleep", {"POST": sleep}),
)


@pytest.fixture
def serve():
    """Return a function that starts a server with some settings; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def start(*routes, ready=True, **settings):
            app = build_app(routes or ROUTES, ServerSettings(**settings), ready=ready)
            return stack.enter_context(WebServer(app))

        yield start


@pytest.fixture
def client():
    """Return a function that makes a client of a server; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def connect(server, **arguments):
            arguments = {"timeout": 20.0, "trust_env": False, **arguments}
            return stack.enter_context(httpx2.Client(base_url=server.url, **arguments))

        yield connect
