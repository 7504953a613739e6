"""Servers and clients in separate processes."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness.child import Child, ChildError
from benchmarks.remote.questions import MARK

HERE = Path(__file__).resolve().parent
AGENT = HERE / "agent.py"
START_S = 120.0
END_S = 20.0


def module(python: str | Path, name: str) -> list[str]:
    """Return the beginning of a command that runs a module of this package."""
    return [str(python), "-m", f"benchmarks.remote.{name}"]


class Asker:
    """A client in a process, that acts when it is told to.

    Args:
        command: of a script that uses `answer_turns`.
    """

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._child = Child(command)
        self._answer(START_S)

    def rate(self, seconds: float) -> float:
        """Return actions per second, over as many seconds.

        Raises:
            RuntimeError: if the client has failed, with the end of what it said.
        """
        with contextlib.suppress(ChildError):  # what it said is read below
            self._child.send(str(seconds))
        n, took = self._answer(START_S + seconds).split()
        return int(n) / float(took)

    def _answer(self, timeout_s: float) -> str:
        try:
            for line in self._child.lines(timeout_s):
                # The package prints what it could not load.
                if line.startswith(MARK):
                    return line.removeprefix(MARK)
        except ChildError as error:
            raise RuntimeError(f"a client failed: {error}") from error
        raise RuntimeError(f"a client failed: {self._child.last_errors()}")

    def close(self) -> None:
        """End it."""
        self._child.close()


@contextlib.contextmanager
def server(command: Sequence[str | Path]) -> Iterator[tuple[str, int]]:
    """Start a server that prints its URL at the end of its first line; yield that and its process's id.

    Raises:
        RuntimeError: if it prints none.
    """
    with Child(command) as child:
        url = next(child.lines(START_S), "").strip().rpartition(" ")[2]
        if not url.startswith("http"):
            raise RuntimeError(f"a server did not start: {child.last_errors()}")
        try:
            yield url, child.pid
        finally:
            child.await_end(END_S, terminate=True)


@contextlib.contextmanager
def parllel_server(
    *flags: str, environment: str = "rps", agent: str | Path = AGENT
) -> Iterator[str]:
    """Start `parllel remote serve` with an agent of a file; yield its URL."""
    command = [sys.executable, "-m", "parllel", "remote", "serve", "--port", "0"]
    folder = Path(str(agent).partition(":")[0]).parent
    asked = ["--environment", environment, "--agent", str(agent), "--agent-root", str(folder)]
    with server([*command, *asked, *flags]) as (url, _):
        yield url


@contextlib.contextmanager
def kaggle_server(python: Path) -> Iterator[str]:
    """Start the server of kaggle-environments; yield the URL by which its client has the agent act.

    Raises:
        RuntimeError: if it does not answer.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    command: list[str | Path] = [
        python.with_name("kaggle-environments"),
        "http-server",
        "--port",
        str(port),
    ]
    with Child(command) as child:
        _await_reply(url, child)
        yield f"{url}?agents[]={AGENT}"


def _await_reply(url: str, child: Child) -> None:
    limit = time.monotonic() + START_S
    while not child.ended and time.monotonic() < limit:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the server of kaggle-environments did not start: {child.last_errors()}")
