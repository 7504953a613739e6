"""A child process of another interpreter, driven by lines of text.

parent --line--> child's stdin      child's stdout --line--> parent      child's stderr --> a file, for errors
parent --signal--> the whole group, so that what the child started ends, or is halted, with it
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
# Where every child finds the benchmarks, parllel and its patterns, whatever its interpreter has installed.
PATHS = (ROOT, ROOT / "patterns")


def end_with_parent() -> None:
    """End this process when the parent of the `Child` that it is closes its standard input, or is killed."""

    def wait() -> None:
        # Not through sys.stdin, whose lock would be held when the interpreter ends.
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class ChildError(RuntimeError):
    """A child took too long, or has ended."""


class ChildEndedError(ChildError):
    """A child has closed its output."""


class Child:
    """A process with a group of its own, which ends with the block.

    Args:
        command: what to run.
        variables: of its environment, beyond those of this process.
        cwd: where.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        variables: Mapping[str, str] | None = None,
        cwd: str | Path = ROOT,
    ) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        # Without a proxy: all that they ask is on this machine.
        inherited = {
            name: value for name, value in os.environ.items() if "proxy" not in name.lower()
        }
        paths = {"PYTHONPATH": os.pathsep.join(map(str, PATHS))}
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**inherited, **paths, **(variables or {})},
            cwd=cwd,
            start_new_session=True,
        )
        self._pending = b""

    @property
    def pid(self) -> int:
        """The number of the process, and of its group."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended; it is left unreaped, so that the number stays its own until `close`."""
        if self._process.returncode is not None:
            return True
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def send(self, line: str) -> None:
        """Write a line.

        Raises:
            ChildEndedError: if it reads no more.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise ChildEndedError("ended before it was asked") from error

    def read_line(self, timeout_s: float) -> str:
        """Return the next line, without its end.

        Raises:
            ChildEndedError: if there is none, and its output has been closed.
            ChildError: if none came in time.
        """
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise ChildError(f"no answer within {timeout_s:g} s")
                part = os.read(descriptor, 65536)
                if not part:
                    raise ChildEndedError("ended without an answer")
                self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()

    def lines(self, timeout_s: float) -> Iterator[str]:
        """Yield lines until it closes its output.

        Raises:
            ChildError: if it says nothing for `timeout_s`.
        """
        with suppress(ChildEndedError):
            while True:
                yield self.read_line(timeout_s)

    def last_errors(self, n_lines: int = 15) -> str:
        """Return the end of what was written to standard error; nothing after `close`."""
        if self._log.closed:
            return ""
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").splitlines()
        return "\n".join([line for line in said if line.strip()][-n_lines:])

    def signal(self, number: int) -> None:
        """Send a signal to the whole group."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def await_end(self, timeout_s: float, *, terminate: bool = False) -> None:
        """Wait until it ends by itself, or for as long; `terminate` asks it to by SIGTERM."""
        if terminate and not self.ended:
            os.kill(self.pid, signal.SIGTERM)
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.close()
        deadline = time.monotonic() + timeout_s
        while not self.ended and time.monotonic() < deadline:
            time.sleep(0.01)

    def close(self) -> None:
        """End the group. Idempotent."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._log.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
