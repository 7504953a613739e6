"""Client of a side's server: a process group that can be queried, paused, continued and ended.

driver --request line--> server's stdin      server's stdout --answer line--> driver
driver --SIGSTOP / SIGCONT--> the whole group, so that a side that is not measured uses no core
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from benchmarks.harness.child import Child, ChildError
from benchmarks.peers.workload import Workload

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
        # Some libraries write logs where they are.
        self._child = Child([python, "-W", "ignore", SERVER], cwd=tempfile.gettempdir())
        self._open = True

    @property
    def pid(self) -> int:
        """The number of the server's process."""
        return self._child.pid

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
        try:
            self._child.send(json.dumps(request))
        except ChildError as error:
            self._fail(str(error))

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the answer to the last request."""
        try:
            answer = json.loads(self._child.read_line(timeout_s))
        except ChildError as error:
            self._fail(str(error))
        if "error" in answer:
            self._fail(answer["error"])
        ok: dict[str, Any] = answer["ok"]
        return ok

    def stop(self) -> None:
        """Halt the whole group until `resume`, if it can be."""
        if self._halts:
            self._child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the group run again."""
        self._child.signal(signal.SIGCONT)

    def close(self) -> None:
        """Ask it to end, then end whatever is left of its group. Idempotent."""
        if not self._open:
            return
        self._open = False
        self.resume()
        with suppress(ChildError):
            self._child.send('{"do": "close"}')
        self._child.await_end(CLOSE_S)
        self._child.close()

    def _fail(self, why: str) -> NoReturn:
        said = self._child.last_errors(1)
        self._open = False
        self._child.close()
        raise SideError(f"{self.name}: {why}" + (f" (its last words: {said})" if said else ""))


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

    def resume(self) -> None:
        """Let all run again."""
        for member in self._members:
            member.resume()

    def close(self) -> None:
        """Close all. Idempotent."""
        self._stack.close()
