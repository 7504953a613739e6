"""The driver's end of a side: a process group that can be asked, stopped, continued and ended.

driver --request line--> server's stdin      server's stdout --answer line--> driver
driver --SIGSTOP / SIGCONT--> the whole group, so that a side that is not measured uses no core
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
# Where every side finds the benchmarks, parllel and its patterns, whatever its interpreter has installed.
PATHS = (ROOT, ROOT / "patterns")
SERVER = Path(__file__).with_name("server.py")
START_S, RUN_S, CLOSE_S = 120.0, 120.0, 10.0
# Simultaneous processes begin this much after they were told.
LEAD_S = 0.02


class SideError(RuntimeError):
    """A side failed or took too long; its processes have been ended."""


class Timing(NamedTuple):
    """What one turn came to: steps per second, and what it was made of."""

    rate: float
    seconds: float
    steps: int


class SideProcess:
    """One server and what it started.

    Args:
        name: for messages.
        python: the interpreter to run it with.
        halts: whether `stop` halts it. A cluster takes a member that is halted for lost.

    Raises:
        SideError: from every method, when the side raises, ends, or is not ready in time.
    """

    def __init__(self, name: str, python: str = sys.executable, *, halts: bool = True) -> None:
        self.name = name
        self._halts = halts
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (lives as long as the server)
        self._process = subprocess.Popen(
            [python, "-W", "ignore", str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS))},
            cwd=tempfile.gettempdir(),  # some libraries write logs where they are
            start_new_session=True,
        )
        self._open = True
        self._pending = b""

    def prepare(
        self, side: str, workload: Workload, settings: dict[str, Any], timeout_s: float = START_S
    ) -> dict[str, Any]:
        """Build the side; return the trace of its first batch and versions."""
        self.send(
            {"do": "prepare", "side": side, "workload": workload.as_dict(), "settings": settings}
        )
        return self.receive(timeout_s)

    def run(self, batches: int, timeout_s: float = RUN_S) -> Timing:
        """Run batches and return how fast."""
        self.send({"do": "run", "batches": batches, "start_at": None})
        answer = self.receive(timeout_s)
        return Timing(answer["steps"] / answer["seconds"], answer["seconds"], answer["steps"])

    def ask(self, question: str, timeout_s: float = RUN_S, **arguments: Any) -> Any:
        """Return the answer to one of the side's own questions."""
        self.send({"do": "ask", "question": question, "arguments": arguments})
        return self.receive(timeout_s)["value"]

    def send(self, request: dict[str, Any]) -> None:
        """Write a request."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            self._fail("ended before it was asked")

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the answer to the last request."""
        answer = json.loads(self._read_line(timeout_s))
        if "error" in answer:
            self._fail(answer["error"])
        ok: dict[str, Any] = answer["ok"]
        return ok

    def stop(self) -> None:
        """Halt the whole group until `go_on`, if it can be."""
        if self._halts:
            self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the group run again."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Ask it to end, then end whatever is left of its group; may be called twice."""
        if not self._open:
            return
        self._open = False
        self.go_on()
        with suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(b'{"do": "close"}\n')
            self._process.stdin.close()
        deadline = time.monotonic() + CLOSE_S
        # The server is left unreaped until its group has been ended, so that the number stays its own.
        while not self._has_ended() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._end_group()

    def _end_group(self) -> None:
        self._open = False
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._log.close()

    def _has_ended(self) -> bool:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _read_line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._fail(f"no answer within {timeout_s:g} s")
                part = os.read(descriptor, 65536)
                if not part:
                    self._fail("ended without an answer")
                self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _fail(self, why: str) -> None:
        self._log.seek(0)
        last = [line for line in self._log.read().splitlines() if line.strip()][-1:]
        self._end_group()
        raise SideError(f"{self.name}: {why}" + (f" (its last words: {last[0]})" if last else ""))


class Together:
    """Several servers that run at the same time and count as one side: their rates add up.

    Methods are those of `SideProcess`; `settings` is a list, with one entry for each server.
    """

    def __init__(self, name: str, python: str, n: int) -> None:
        self.name = name
        with ExitStack() as stack:
            self._members: list[SideProcess] = []
            for i in range(n):
                self._members.append(SideProcess(f"{name} ({i + 1} of {n})", python))
                stack.callback(self._members[-1].close)
            self._stack = stack.pop_all()

    def prepare(
        self,
        side: str,
        workload: Workload,
        settings: Sequence[dict[str, Any]],
        timeout_s: float = START_S,
    ) -> dict[str, Any]:
        """Build all; traces add up."""
        answers = [
            member.prepare(side, workload, own, timeout_s)
            for member, own in zip(self._members, settings, strict=True)
        ]
        keys = answers[0]["trace"]
        trace = {key: sum(answer["trace"][key] for answer in answers) for key in keys}
        return {"trace": trace, "versions": answers[0]["versions"]}

    def run(self, batches: int, timeout_s: float = RUN_S) -> Timing:
        """Run batches in all at once; the rate is the sum of the rates."""
        start_at = time.monotonic() + LEAD_S
        for member in self._members:
            member.send({"do": "run", "batches": batches, "start_at": start_at})
        answers = [member.receive(timeout_s) for member in self._members]
        return Timing(
            sum(answer["steps"] / answer["seconds"] for answer in answers),
            max(answer["seconds"] for answer in answers),
            sum(answer["steps"] for answer in answers),
        )

    def ask(self, question: str, timeout_s: float = RUN_S, **arguments: Any) -> Any:
        """Return the answers of all, in order."""
        return [member.ask(question, timeout_s, **arguments) for member in self._members]

    def stop(self) -> None:
        """Halt all."""
        for member in self._members:
            member.stop()

    def go_on(self) -> None:
        """Let all run again."""
        for member in self._members:
            member.go_on()

    def close(self) -> None:
        """Close all; may be called twice."""
        self._stack.close()
