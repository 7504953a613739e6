"""Contract of resuming, for all algorithms and samplers: a resumed run equals an uninterrupted one.

    class TestMyAlgorithm(ResumeContract):
        def make_runner(self, stack, folder, callbacks):
            ...
            return OnPolicyRunner(..., folder=folder, callbacks=callbacks, checkpoint_interval_s=0.0)

`make_runner` must create everything from the same seed and put anything to close on the stack. Keep runs
small: three or four rows of two batches each, including evaluations.
"""

from __future__ import annotations

import csv
import os
import random
import signal
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.large_array import LargeArray
from parllel.logging.csv_writer import CsvWriter
from parllel.logging.logger import Logger
from parllel.runners.callback import Callback
from parllel.runners.runner import Runner
from parllel.runs.run_folder import RunFolder
from parllel.runs.run_result import RunResult


class ResumeContract:
    """Tests that compare all logged values except times, and the full content of checkpoints.

    Attributes:
        interruptions: how runs are interrupted, and at which batch. A signal lets the batch finish and leaves
            a checkpoint of it; "exception" leaves the one of the last row.
    """

    interruptions: Sequence[tuple[str, int]] = (("SIGINT", 1), ("exception", 4))

    def make_runner(self, stack: ExitStack, folder: RunFolder, callbacks: list[Callback]) -> Runner:
        """Return a runner that writes to `folder` and uses `callbacks`. See the module docstring."""
        raise NotImplementedError(
            f"{type(self).__name__} must define make_runner() to create a runner"
        )

    def make_logger(self, folder: RunFolder) -> Logger:
        """Return a logger for `make_runner` to use."""
        return Logger([CsvWriter(folder.path)])

    def test_a_resumed_run_equals_an_uninterrupted_one(self, tmp_path: Path) -> None:
        whole = RunFolder(tmp_path, "whole")
        expected = self._run(whole, Interruption(None, ""))
        for how, batches in self.interruptions:
            folder = RunFolder(tmp_path, f"{how}-{batches}")
            with suppress(InterruptedRunError):
                stopped = self._run(folder, Interruption(batches, how))
                assert stopped.stopped_by == how
                # Otherwise there is nothing left to resume, and all that follows is true of itself.
                assert stopped.elapsed_steps < expected.elapsed_steps
            # Another process would find them elsewhere: where they were left, they would be right by chance.
            _disturb_global_generators()
            result = self._run(folder, Interruption(None, ""), resume=True)
            assert result.elapsed_steps == expected.elapsed_steps
            assert result.curves == expected.curves
            # The rows before a late interruption also show that two runs are equal.
            assert rows_of(folder) == rows_of(whole)
            _, state = folder.checkpoints.load_newest()
            _, wanted = whole.checkpoints.load_newest()
            assert_equal_states(comparable_state(state), comparable_state(wanted))
            for name in ("python", "numpy"):  # torch's was not seeded
                assert_equal_states(state["random"][name], wanted["random"][name], name)

    def _run(
        self, folder: RunFolder, interruption: Interruption, *, resume: bool = False
    ) -> RunResult:
        random.seed(1)
        np.random.seed(2)
        with ExitStack() as stack:
            runner = self.make_runner(stack, folder, [interruption])
            stack.callback(runner.logger.close)
            if resume:
                _, state = folder.checkpoints.load_newest()
                runner.load_state(state)
                runner.logger.rewind(runner.result.elapsed_steps)
            return runner.run()


class InterruptedRunError(Exception):
    """Raised to end a run in the middle of an iteration."""


class Interruption(Callback):
    """End the run when the algorithm is about to learn from a batch.

    Args:
        batches: from which one; None lets it run.
        how: name of a signal, which lets the iteration finish, or anything else for an exception.
    """

    def __init__(self, batches: int | None, how: str) -> None:
        self._left, self._how = batches, how

    def before_optimization(self, elapsed_steps: int) -> None:
        """Count, and draw from the global generators, as users' code may do."""
        random.random(), np.random.random()
        if self._left is None:
            return
        self._left -= 1
        if self._left == 0 and self._how.startswith("SIG"):
            # A signal and not a flag of the runner, as this is how users and schedulers stop runs.
            os.kill(os.getpid(), signal.Signals[self._how])
        elif self._left == 0:
            raise InterruptedRunError


def _disturb_global_generators() -> None:
    random.seed(99)
    np.random.seed(99)


def rows_of(folder: RunFolder) -> list[dict[str, str]]:
    """Return the rows of a run's CSV without times and rates."""
    # The text of the file, so that floats must agree to the last digit.
    with (folder.path / "progress.csv").open(newline="") as file:
        return [
            {name: value for name, value in row.items() if not name.startswith("time/")}
            for row in csv.DictReader(file)
        ]


def comparable_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return a runner's state without times and values that belong to the process."""
    others = ("time", "asynchronous", "random")
    return {name: value for name, value in state.items() if name not in others}


def assert_equal_states(found: Any, expected: Any, at: str = "state") -> None:
    """Compare trees of arrays and JSON values exactly; the error names the first difference."""
    assert type(found) is type(expected), f"{at}: {found!r}, expected {expected!r}"
    if isinstance(expected, dict):
        # In the same order as well, since files keep it and a diff of two states should be empty.
        assert list(found) == list(expected), at
        for name in expected:
            assert_equal_states(found[name], expected[name], f"{at}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), at
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_equal_states(one, other, f"{at}[{i}]")
    elif isinstance(expected, LargeArray):
        assert_equal_states(_elements_of(found), _elements_of(expected), at)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype, at
        np.testing.assert_array_equal(found, expected, err_msg=at)
    else:
        # NaN equals NaN here, such as the mean return before the first episode has ended.
        assert found == expected or (found != found and expected != expected), (
            f"{at}: {found!r}, expected {expected!r}"
        )


def _elements_of(array: LargeArray) -> NDArray[Any]:
    elements = np.empty(array.shape, array.dtype)
    array.read_into(elements)
    return elements
