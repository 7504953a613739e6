from __future__ import annotations

import contextlib

import httpx2
import pytest
from dashboard_server import DashboardServer
from scripted_board import ScriptedBoard
from shown_board import ShownBoard
from websockets.sync.client import connect

from parllel.distributed.operators import Dashboard
from parllel.testing import Service


class Opened:
    """A dashboard in this process, and clients of it that have its token."""

    def __init__(self, stack, dashboard):
        self._stack = stack
        self.dashboard = dashboard
        self.token = dashboard.token
        self.headers = {"Authorization": f"Bearer {self.token}"}
        self.rest = stack.enter_context(
            httpx2.Client(
                base_url=dashboard.url, headers=self.headers, timeout=60.0, trust_env=False
            )
        )

    def socket(self, **arguments):
        """Return a WebSocket, which is closed at the end."""
        url = "ws" + self.dashboard.url.removeprefix("http") + "/api/ws"
        arguments = {"additional_headers": self.headers, "proxy": None, **arguments}
        return self._stack.enter_context(connect(url, **arguments))


@pytest.fixture
def opened():
    """Return a function that serves a board in this process; all is closed at the end."""
    with contextlib.ExitStack() as stack:

        def serve(board, **arguments):
            dashboard = stack.enter_context(Dashboard(board, **arguments))
            return Opened(stack, dashboard)

        yield serve


@pytest.fixture
def board(tmp_path):
    # A server lists the runs beside a board's folder: only this test's.
    folder = tmp_path / "runs" / "board"
    folder.mkdir(parents=True)
    return ScriptedBoard(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that the tests of a file share, in a process of its own; each takes its cards away."""
    with (
        Service("dashboard") as service,
        DashboardServer(tmp_path_factory.mktemp("dashboard")) as server,
    ):
        service.adopt(server.process.pid)
        yield server


@pytest.fixture
def shown(server, pages):
    """The page of that server, without cards."""
    shown = ShownBoard(pages.open(server.url))
    yield shown
    shown.clear()
