"""One side in a process of its own, driven by JSON lines.

driver -> {"do": "prepare", "side": "module:Class", "workload": {...}, "settings": {...}}
driver -> {"do": "run", "batches": 3, "start_at": 12.5}     start_at: time.monotonic(), or null
driver -> {"do": "ask", "question": "forward_s", "arguments": {...}}
driver -> {"do": "close"}
server -> {"ok": {...}}  or  {"error": "...", "traceback": "..."}
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Workload


class Server:
    """Obey one request after the other."""

    def __init__(self) -> None:
        self.side: Side | None = None

    def obey(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request; whatever goes wrong is raised."""
        what = request.pop("do")
        if what not in ("prepare", "run", "ask", "close"):
            raise ValueError(f"do: expected prepare, run, ask or close, got {what!r}")
        answer: dict[str, Any] = getattr(self, what)(**request)
        return answer

    def prepare(
        self, side: str, workload: dict[str, Any], settings: dict[str, Any]
    ) -> dict[str, Any]:
        """Build the side and sample its first batch."""
        module, _, name = side.partition(":")
        make = getattr(import_module(module), name)
        self.side = make(Workload(**workload), settings)
        return {"trace": self._made().first(), "versions": versions(make.libraries)}

    def run(self, batches: int, start_at: float | None = None) -> dict[str, Any]:
        """Sample batches, and say how long they took and how many steps were in them."""
        run, steps = self._made().run, 0
        if start_at is not None:
            # Several servers begin at once; the clock is the same for all processes of a machine.
            time.sleep(max(0.0, start_at - time.monotonic() - 1e-3))
            while time.monotonic() < start_at:
                pass
        start = time.perf_counter()
        for _ in range(batches):
            steps += run()
        return {"seconds": time.perf_counter() - start, "steps": steps}

    def ask(self, question: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call one of the side's questions."""
        side = self._made()
        if question not in side.questions:
            raise ValueError(f"question: expected one of {side.questions}, got {question!r}")
        return {"value": getattr(side, question)(**arguments)}

    def close(self) -> dict[str, Any]:
        """Close the side. Idempotent."""
        side, self.side = self.side, None
        if side is not None:
            side.close()
        return {}

    def _made(self) -> Side:
        if self.side is None:
            raise ValueError("there is no side yet: send prepare first")
        return self.side


def versions(libraries: tuple[str, ...]) -> dict[str, str]:
    """Return the version of Python and of each library that is installed."""
    found = {"python": platform.python_version()}
    for library in ("numpy", "gymnasium", *libraries):
        with suppress(metadata.PackageNotFoundError):
            found[library] = metadata.version(library)
    return found


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer until the requests end or one says close."""
    server = Server()
    try:
        for line in requests:
            request = json.loads(line)
            closing = request["do"] == "close"
            try:
                answer: dict[str, Any] = {"ok": server.obey(request)}
            except Exception as error:
                answer = {
                    "error": f"{type(error).__name__}: {error}",
                    "traceback": traceback.format_exc(),
                }
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
            if closing:
                break
    finally:
        server.close()


if __name__ == "__main__":
    # Libraries print; only answers may reach the driver.
    with os.fdopen(os.dup(1), "w") as to_driver:
        os.dup2(2, 1)
        serve(sys.stdin, to_driver)
