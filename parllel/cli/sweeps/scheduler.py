"""Runs in processes, several at a time.

    source.next_run  --->  start, up to `jobs` at a time   --->  one_run, a Program with its log
    source.progressed <--  new rows of progress.csv        <---
    source.ended     <---  exit code, last line of the log <---

Programs end with this process, however it ends. A first signal has every run write its checkpoint and exit; a
second one kills them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Protocol

from parllel.cli.sweeps.folder import ENDED, PRUNED, SweepFolder
from parllel.cli.sweeps.progress import Progress
from parllel.cli.sweeps.script import Script
from parllel.cli.sweeps.settings import RunSettings
from parllel.runners.stop_signals import StopSignals
from parllel.system.processes import Program

_POLL_S = 0.5  # between looks at the progress of runs
# Each library has a pool of threads of its own, and reads its own variable.
_THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
)


@dataclass
class ScheduledRun:
    """A run of a sweep and its state.

    Attributes:
        settings: its settings.
        progress: its steps and returns.
        state: "waiting", "running", "pruned", or a state of `run_state`.
        error: why it failed, one line; "" otherwise.
    """

    settings: RunSettings
    progress: Progress
    state: str = "waiting"
    error: str = ""

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.settings.name


class Source(Protocol):
    """Where runs come from."""

    def next_run(self) -> ScheduledRun | None:
        """Return the next run to start, or None if none is left."""

    def progressed(self, run: ScheduledRun) -> bool:
        """Receive new rows of a run. Returns whether it should end now."""

    def ended(self, run: ScheduledRun) -> None:
        """Receive the end of a run, with its final state."""


class Scheduler:
    """Runs the runs of a source.

    Args:
        script: the script.
        folder: folder of the sweep.
        jobs: how many runs are in progress at once.
        threads: threads of each run.
        show: function called with a run whenever its state or progress changes.

    Attributes:
        stopped_by: name of the signal that ended the sweep early, or None.
    """

    def __init__(
        self,
        script: Script,
        folder: SweepFolder,
        jobs: int,
        threads: int,
        show: Callable[[ScheduledRun], None],
    ) -> None:
        self._script, self._folder = script, folder
        self._jobs, self._threads, self._show = jobs, threads, show
        self._running: list[tuple[ScheduledRun, Program]] = []
        self.stopped_by: str | None = None

    def run(self, source: Source, announce: Callable[[str], None]) -> None:
        """Run all runs. Returns when all have ended, also after a first SIGINT or SIGTERM.

        announce: function called with the name of that signal.

        Raises:
            KeyboardInterrupt: for a second SIGINT, after all runs were killed.
            OSError: if a process cannot be started.
        """
        with StopSignals(lambda name: None) as signals:
            try:
                while True:
                    if signals.received is not None and self.stopped_by is None:
                        self.stopped_by = signals.received
                        announce(signals.received)
                        for _, program in self._running:
                            program.terminate()
                    self._start_next(source)
                    if not self._running:
                        return
                    wait([program.sentinel for _, program in self._running], _POLL_S)
                    self._look(source)
            finally:
                for _, program in self._running:
                    program.kill()

    def _start_next(self, source: Source) -> None:
        while self.stopped_by is None and len(self._running) < self._jobs:
            run = source.next_run()
            if run is None:
                return
            run.state, run.error = "running", ""
            self._running.append((run, self._program(run.settings)))
            self._show(run)

    def _program(self, settings: RunSettings) -> Program:
        pairs = [f"{key}={text}" for key, text in settings.changes.items()]
        module = "parllel.cli.sweeps.one_run"
        where = [str(self._script.file), str(self._folder.path), settings.name]
        return Program(
            [sys.executable, "-m", module, *where, *pairs],
            name=settings.name,
            environment={**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(self._threads))},
            lines=False,
            output_to_stderr=True,
            stderr=self._folder.log(settings.name),
        )

    def _look(self, source: Source) -> None:
        for run, program in list(self._running):
            died = program.died()  # before the last rows are read
            if run.progress.refresh():
                if run.state == "running" and source.progressed(run):
                    run.state = PRUNED
                    program.terminate()  # it writes its checkpoint and exits
                self._show(run)
            if died:
                self._running.remove((run, program))
                self._end(run, program)
                source.ended(run)
                self._show(run)

    def _end(self, run: ScheduledRun, program: Program) -> None:
        code, lines = program.wait(5.0), program.last_lines(1)
        how = program.exit_text()
        program.kill()  # what it has left behind, and the log's descriptor
        state = self._folder.state(run.name)
        if code == 0 and state in ENDED:  # perhaps before the pruner's signal arrived
            run.state = state
        elif run.state == PRUNED:
            return
        elif self.stopped_by is not None and code in (-signal.SIGTERM, 128 + signal.SIGTERM):
            run.state = "stopped" if state == "stopped" else "waiting"
        else:
            run.state = "failed"
            run.error = lines[0] if lines and code is not None and code > 0 else how
