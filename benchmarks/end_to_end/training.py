"""Run one training in a separate process and collect its report."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.end_to_end.settings import TrainingSettings
from benchmarks.end_to_end.sides import Side, Variant
from benchmarks.harness.child import Child, ChildError

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

    settings: TrainingSettings
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


def train(
    python: str,
    side: Side,
    variant: Variant,
    settings: TrainingSettings,
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
    threads = dict.fromkeys(THREAD_VARIABLES, str(variant.torch_threads))
    training, ended, started = Training(settings), False, time.perf_counter()
    with Child(command, threads) as child:
        try:
            for line in child.lines(line_s):
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
        except (TrainingError, ChildError, ValueError, KeyError) as error:
            print(child.last_errors(), file=sys.stderr)
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
