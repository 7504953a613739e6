"""Another checkout of this repository, whose code works in a process of its own when it is told to.

benchmark   OtherCheckout.turn  ---- an empty line ---->  function of the same benchmark's file, which
<--- its answer, a line --  imports the other checkout's `parllel`
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

_END_S = 60.0
# As `__main__`, so that its classes are pickled whole, where the other checkout has none of them.
_PROGRAM = """
import json, sys
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"))
globals()[sys.argv[2]](*json.loads(sys.argv[3]))
"""


class OtherCheckout:
    """Runs a function of a file there, which answers each line of its input with one; use it in `with`.

    Args:
        checkout: folder of the other checkout.
        file: the benchmark.
        function: name of the function in it.
        arguments: of the function, JSON values.

    Raises:
        ValueError: if the folder is no checkout. This one's code would be compared with itself.
    """

    def __init__(self, checkout: str, file: str, function: str, *arguments: Any) -> None:
        if not Path(checkout, "parllel", "__init__.py").is_file():
            raise ValueError(f"expected a checkout of parllel, got {checkout!r}")
        self._process: Any = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, file, function, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([".", "patterns"])},
        )

    def turn(self) -> str:
        """Let it work once, and return its answer.

        Raises:
            RuntimeError: if it has ended.
        """
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        answer: str = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process of the other checkout has ended; its error is above")
        return answer.rstrip("\n")

    def __enter__(self) -> OtherCheckout:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=_END_S)
