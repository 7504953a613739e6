"""`parllel remote serve`, and the server of kaggle-environments, as processes of their own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from unused_ports import unused_port
from waiting import LONG_S

from parllel.distributed.remote.server import Actions, build_server
from parllel.distributed.remote.server.permissions import Permissions
from parllel.distributed.web import ServerSettings, WebServer

ENDED = 0  # exit status after SIGTERM


@contextlib.contextmanager
def http_server(
    *flags: object,
    cwd: Path | None = None,
    stderr: IO[str] | None = None,
    **variables: str,
) -> Iterator[str]:
    """Serve, and yield the URL that the command prints; it must end in order."""
    command = [sys.executable, "-m", "parllel", "remote", "serve", *map(str, flags)]
    if "--port" not in flags:
        command += ["--port", "0"]
    environment = {**os.environ, **variables}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment, cwd=cwd
    )
    assert process.stdout is not None
    try:
        found = re.fullmatch(r"serving on (http://\S+)\n", process.stdout.readline())
        assert found, "it did not start"
        yield found[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_S) == ENDED
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def kaggle_server(python: Path) -> Iterator[str]:
    """Serve with the package, which knows no end in order, and yield the URL."""
    port = unused_port()
    command = [python.parent / "kaggle-environments", "http-server", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        limit = time.monotonic() + LONG_S
        while True:
            try:
                urllib.request.urlopen(url, timeout=LONG_S).close()
                break
            except OSError:
                assert process.poll() is None, "it ended"
                assert time.monotonic() < limit, "it did not start"
                time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def served_here(
    permissions: Permissions | None = None,
    *,
    agent: object = None,
    environment: str = "rps",
    settings: ServerSettings | None = None,
    **options: Any,
) -> Iterator[str]:
    """Serve in this process, with an agent of the start or without; yield the URL."""
    with (
        Actions(permissions, **options) as actions,
        WebServer(build_server(settings or ServerSettings(), actions)) as server,
    ):
        if agent is not None:
            actions.load_agent(str(agent), environment, None)
        yield server.url
