"""Runs the sessions of an experiment, one thread each, until all have ended or the user stops them.

main thread        starts and watches the threads, shows progress; receives Ctrl-C and SIGTERM
a thread each      OperatorSession.play; spends most of its time waiting for its worker
gate               the main thread ends the others by stop(); ending the workers wakes those that still wait
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from parllel.distributed.operators.experiments.episode_gate import EpisodeGate, StoppedError
from parllel.distributed.operators.experiments.operator_session import OperatorSession
from parllel.errors import first_of
from parllel.system.raised_signals import RaisedSignals

_LOOK_S = 0.1  # between updates of the progress
# For threads between two steps to leave by themselves, before their workers are ended.
_LEAVE_S = 0.5
_JOIN_S = 30.0  # for threads whose workers were ended


class ExperimentProgress:
    """Progress bars on stderr: episodes, mean reward, steps per second and time left of each session.

    Args:
        sessions: the sessions being played.
        shown: False draws nothing.
    """

    def __init__(self, sessions: Sequence[OperatorSession], *, shown: bool) -> None:
        self._sessions = sessions
        self._bars = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:.0f}/{task.total:.0f} episodes"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=Console(stderr=True),
            disable=not shown,
        )
        self._tasks = [
            self._bars.add_task(escape(session.name), total=session.n_episodes, status="")
            for session in sessions
        ]
        self._began_s = time.monotonic()
        self._n_steps = [
            session.n_steps for session in sessions
        ]  # of an earlier part, not timed here

    def update(self) -> None:
        """Update the bars."""
        if self._bars.disable:
            return
        elapsed_s = max(time.monotonic() - self._began_s, 1e-3)
        for task, session, before in zip(self._tasks, self._sessions, self._n_steps, strict=True):
            status = []
            if session.mean_reward is not None:
                status.append(f"reward {session.mean_reward:.4g}")
            if session.n_failed:
                status.append(f"{session.n_failed} failed")
            if not self._bars.tasks[task].finished:
                status.append(f"{(session.n_steps - before) / elapsed_s:,.0f} steps/s")
                self._bars.update(task, completed=session.n_done, status=", ".join(status))

    def __enter__(self) -> ExperimentProgress:
        self._began_s = time.monotonic()
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        # As in training: a closed pipe, at which rich exits the program, must not undo the work.
        with contextlib.suppress(OSError, SystemExit):
            self._bars.stop()


def play_all(
    sessions: Sequence[OperatorSession],
    gate: EpisodeGate,
    end_workers: Callable[[], None],
    show: Callable[[], None],
) -> str | None:
    """Play all sessions. Returns what stopped them early: "SIGINT", "SIGTERM", "page" or None.

    Args:
        gate: gate that the sessions pass.
        end_workers: function that ends all workers immediately. Called if the sessions are stopped.
        show: function called ten times a second. It raises StoppedError to stop the sessions.

    Raises:
        Exception: the exception that a session raised. The other sessions are stopped first.
    """
    errors: list[BaseException] = []
    threads = [
        threading.Thread(
            target=_play, args=(session, gate, errors), name=f"operator {session.name}"
        )
        for session in sessions
    ]
    stopped_by: str | None = None
    try:
        errors_of = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: _TerminatedError}
        with RaisedSignals(errors_of) as signals:
            for thread in threads:
                thread.start()
            # Polled: this thread shows the progress, and it is the one that receives Ctrl-C.
            while any(thread.is_alive() for thread in threads):
                _join(threads, _LOOK_S)
                signals.check()
                show()
    except KeyboardInterrupt as stopped:
        stopped_by = "SIGTERM" if isinstance(stopped, _TerminatedError) else "SIGINT"
    except StoppedError:
        stopped_by = "page"
    finally:
        # The gate first: otherwise a session whose worker is ended during a step would record a failure.
        gate.stop()
        _join(threads, _LEAVE_S)
        if any(thread.is_alive() for thread in threads):
            # Only those whose worker is still computing: its end makes their read return.
            end_workers()
            _join(threads, _JOIN_S)
    if stopped_by is None:
        show()  # the last counts
    if errors:
        raise first_of(errors)
    return stopped_by


def _play(session: OperatorSession, gate: EpisodeGate, errors: list[BaseException]) -> None:
    try:
        session.play()
    except StoppedError:
        pass  # the main thread knows why
    except BaseException as error:
        errors.append(error)
        # Not a failure of one operator, but a full disk, for example: it concerns all.
        gate.stop()


def _join(threads: Sequence[threading.Thread], timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    for thread in threads:
        if thread.ident is not None:  # Ctrl-C may arrive before all were started
            thread.join(max(0.0, end - time.monotonic()))


class _TerminatedError(KeyboardInterrupt):
    """Raised on SIGTERM, which ends an experiment like Ctrl-C."""
