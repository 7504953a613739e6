"""Run one training as a process of its own and take in what it reports."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import IO, Any

from benchmarks.end_to_end.pythons import ROOT
from benchmarks.end_to_end.settings import Settings
from benchmarks.end_to_end.sides import Side, Variant

LINE_S = 180.0  # the longest that a start or a batch may take
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class TrainingError(Exception):
    """A training ended badly, said something else than was agreed, or said nothing for too long."""


@dataclass
class Training:
    """One training, batch by batch.

    Attributes:
        start_s: from the start of the process until training began: imports, environments.
        sampling_s, learning_s: of each batch. Time between batches counts as one of the two.
        returns: of the episodes that each batch ended.
    """

    settings: Settings
    start_s: float = 0.0
    libraries: dict[str, str] = field(default_factory=dict)
    sampling_s: list[float] = field(default_factory=list)
    learning_s: list[float] = field(default_factory=list)
    returns: list[list[float]] = field(default_factory=list)

    @property
    def steps_per_second(self) -> float:
        """Return the rate without the first batch, in which functions are compiled and loaded."""
        seconds = sum(self.sampling_s[1:]) + sum(self.learning_s[1:])
        return (len(self.sampling_s) - 1) * self.settings.batch_size / seconds


class LineProcess:
    """A process whose lines are read with a time-out; it and all that it started end with the block."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # so that its group holds what it starts, and nothing else
        )
        self._rest = b""

    def __enter__(self) -> LineProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def lines(self, timeout_s: float) -> Iterator[bytes]:
        """Yield lines until the process closes its output.

        Raises:
            TrainingError: if it says nothing for `timeout_s`.
        """
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                if not selector.select(timeout_s):
                    raise TrainingError(f"said nothing for {timeout_s:g} s")
                data = os.read(descriptor, 1 << 16)
                if not data:
                    return
                *lines, self._rest = (self._rest + data).split(b"\n")
                yield from lines

    def last_errors(self, n_lines: int = 15) -> str:
        """Return the end of what was written to standard error."""
        self._errors.seek(0)
        return "\n".join(self._errors.read().decode(errors="replace").splitlines()[-n_lines:])


def train(
    python: str,
    side: Side,
    variant: Variant,
    settings: Settings,
    *,
    line_s: float = LINE_S,
) -> Training:
    """Run a training to its end.

    Args:
        python: the interpreter.
        line_s: the longest that the start or a batch may take, in seconds.

    Raises:
        TrainingError: with the end of the process's own messages.
    """
    settings = replace(settings, torch_threads=variant.torch_threads, options=variant.options)
    command = [python, "-m", f"{__package__}.{side.module}", settings.to_json()]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.update(dict.fromkeys(THREAD_VARIABLES, str(variant.torch_threads)))
    training, ended, started = Training(settings), False, time.perf_counter()
    with LineProcess(command, env) as process:
        try:
            for line in process.lines(line_s):
                message = json.loads(line)
                if message["event"] == "ready":
                    training.start_s = time.perf_counter() - started
                ended = take_in(training, message)
                if ended:
                    break  # what is left of it is ended with the block
            if not ended or len(training.returns) != settings.n_batches:
                raise TrainingError(
                    f"expected {settings.n_batches} batches and an end, got {len(training.returns)}"
                )
        except (TrainingError, ValueError, KeyError) as error:
            print(process.last_errors(), file=sys.stderr)
            raise TrainingError(f"{side.name} ({variant.name}): {error}") from error
    return training


def take_in(training: Training, message: dict[str, Any]) -> bool:
    """Add one message to a training; return whether it was the last."""
    if message["event"] == "ready":
        training.libraries = message["libraries"]
    elif message["event"] == "batch":
        training.sampling_s.append(message["sampling_s"])
        training.learning_s.append(message["learning_s"])
        training.returns.append(message["returns"])
    return bool(message["event"] == "end")
