"""The progress bars of an experiment: one for each operator or game."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from time import monotonic

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from parllel.distributed.operators.experiments.operator_session import OperatorSession


class ExperimentProgress:
    """Show episodes done, their mean reward, steps per second and time left, on stderr.

    Args:
        sessions: what is played.
        shown: False draws nothing.
    """

    def __init__(self, sessions: Sequence[OperatorSession], *, shown: bool) -> None:
        self._sessions = sessions
        self._bars = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:.0f}/{task.total:.0f} episodes"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[said]}"),
            console=Console(stderr=True),
            disable=not shown,
        )
        self._tasks = [
            self._bars.add_task(escape(session.name), total=session.n_episodes, said="")
            for session in sessions
        ]
        self._began_s = monotonic()
        self._n_steps = [session.n_steps for session in sessions]  # of an earlier part

    def update(self) -> None:
        """Move the bars."""
        if self._bars.disable:
            return
        elapsed_s = max(monotonic() - self._began_s, 1e-3)
        for task, session, before in zip(self._tasks, self._sessions, self._n_steps, strict=True):
            said = []
            if session.mean_reward is not None:
                said.append(f"reward {session.mean_reward:.4g}")
            if session.n_failed:
                said.append(f"{session.n_failed} failed")
            if not self._bars.tasks[task].finished:
                said.append(f"{(session.n_steps - before) / elapsed_s:,.0f} steps/s")
                self._bars.update(task, completed=session.n_done, said=", ".join(said))

    def __enter__(self) -> ExperimentProgress:
        self._began_s = monotonic()
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        # As of training: a closed pipe, at which rich would end the program, undoes nothing.
        with contextlib.suppress(OSError, SystemExit):
            self._bars.stop()
