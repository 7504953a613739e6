"""Servers and clients as processes of their own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

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
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self._line()

    def rate(self, seconds: float) -> float:
        """Return actions per second, over as many seconds.

        Raises:
            RuntimeError: if the client has failed, with the end of what it said.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print(seconds, file=self._process.stdin, flush=True)
        n, took = self._line().split()
        return int(n) / float(took)

    def _line(self) -> str:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for line in self._process.stdout:
            # The package prints what it could not load.
            if line.startswith(MARK):
                return line.removeprefix(MARK)
        raise RuntimeError(f"a client failed: {self._process.stderr.read()[-1000:]}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def environment() -> dict[str, str]:
    """Return the variables of servers and clients: without a proxy, and with our package to import."""
    root = str(HERE.parents[1])
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return {**kept, "PYTHONPATH": os.pathsep.join((root, kept.get("PYTHONPATH", "")))}


@contextlib.contextmanager
def server(command: Sequence[str | Path]) -> Iterator[tuple[str, int]]:
    """Start a server that prints its URL at the end of its first line; yield that and its process's id.

    Raises:
        RuntimeError: if it prints none.
    """
    with subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            url = process.stdout.readline().strip().rpartition(" ")[2]
            if not url.startswith("http"):
                process.kill()
                raise RuntimeError(f"a server did not start: {process.stderr.read()[-1000:]}")
            yield url, process.pid
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=END_S)
            process.kill()


@contextlib.contextmanager
def parllel_server(*flags: str) -> Iterator[str]:
    """Start `parllel http-server` with the agent; yield its URL."""
    command = [sys.executable, "-m", "parllel.cli", "http-server", "--port", "0"]
    agent = ["--environment", "rps", "--agent", str(AGENT), "--agent-root", str(HERE)]
    with server([*command, *agent, *flags]) as (url, _):
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
    with subprocess.Popen(
        [python.with_name("kaggle-environments"), "http-server", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    ) as process:
        try:
            _await_reply(url, process)
            yield f"{url}?agents[]={AGENT}"
        finally:
            process.kill()


def _await_reply(url: str, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < limit:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server of kaggle-environments did not start")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
