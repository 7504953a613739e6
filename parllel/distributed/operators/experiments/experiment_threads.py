"""Run the sessions of an experiment, each in a thread, until all have ended or the user stops them.

main thread        starts the threads, looks at them, shows progress; Ctrl-C and SIGTERM come here
a thread each      OperatorSession.play; most of its time it waits for its worker
gate               stop() is how the main thread ends the others; ending the workers wakes those that wait
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from parllel.distributed.operators.experiments.episode_gate import EpisodeGate, StoppedError
from parllel.distributed.operators.experiments.operator_session import OperatorSession
from parllel.errors import first_of

_LOOK_S = 0.1
# For threads that are between two steps to leave by themselves, before their workers are ended.
_LEAVE_S = 0.5
_JOIN_S = 30.0


class ExperimentProgress:
    """Show a bar for each operator or game on stderr: episodes, mean reward, steps per second, time left.

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
        self._began_s = time.monotonic()
        self._n_steps = [session.n_steps for session in sessions]  # of an earlier part

    def update(self) -> None:
        """Move the bars."""
        if self._bars.disable:
            return
        elapsed_s = max(time.monotonic() - self._began_s, 1e-3)
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
        self._began_s = time.monotonic()
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        # As of training: a closed pipe, at which rich would end the program, undoes nothing.
        with contextlib.suppress(OSError, SystemExit):
            self._bars.stop()


def play_all(
    sessions: Sequence[OperatorSession],
    gate: EpisodeGate,
    end_workers: Callable[[], None],
    show: Callable[[], None],
) -> str | None:
    """Play all sessions, and return what stopped them early: "SIGINT", "SIGTERM", "page" or None.

    Args:
        gate: of the sessions.
        end_workers: ends all workers at once; called if the sessions are stopped.
        show: called ten times a second; stops the sessions by StoppedError.

    Raises:
        Exception: what a session raised, after the others were stopped.
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
        with _noticing_sigterm():
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                _join(threads, _LOOK_S)
                show()
    except KeyboardInterrupt as stopped:
        stopped_by = "SIGTERM" if isinstance(stopped, _TerminatedError) else "SIGINT"
    except StoppedError:
        stopped_by = "page"
    finally:
        # In this order: a session whose worker is ended while it steps would take that for a failure, if the
        # gate did not say that all is stopped.
        gate.stop()
        _join(threads, _LEAVE_S)
        if any(thread.is_alive() for thread in threads):
            end_workers()
            _join(threads, _JOIN_S)
    if stopped_by is None:
        show()
    if errors:
        raise first_of(errors)
    return stopped_by


def _play(session: OperatorSession, gate: EpisodeGate, errors: list[BaseException]) -> None:
    try:
        session.play()
    except StoppedError:
        pass
    except BaseException as error:
        errors.append(error)
        # What is no failure of an operator, such as a full disk, concerns all.
        gate.stop()


def _join(threads: Sequence[threading.Thread], timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    for thread in threads:
        if thread.ident is not None:  # Ctrl-C may come before all were started
            thread.join(max(0.0, end - time.monotonic()))


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM, which is to end an experiment as Ctrl-C does."""


@contextmanager
def _noticing_sigterm() -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise _TerminatedError

    ours = (
        threading.current_thread() is threading.main_thread()
        # Another's handler stays.
        and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )
    if ours:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
