"""Worker process of a SynchronizedProcessCage.

    main -> worker     go: a number                     for rows, nothing else is sent
                       CALL, number, (op, arguments)    over the pipe, after the go that announces it
    worker -> main     done: that number                makes its writes to the batch visible;
                       a byte through the wakeup pipe   only if main listens, see wakeup_pipe.py
                       ANSWER, ERROR                    in the mail box, or over the pipe if too long
                       EXCEPTION                        the worker ends, and all its done words are FAILED.
                                                        Followed by results that main has not collected

A reply in the mail box is written before the done word, which makes it visible. A reply over the pipe is sent
after the done word: main reads the pipe only once it has seen the word, and a long reply blocks until read.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from parllel.buffers.child_conversation import ChildConversation
from parllel.buffers.conversation import FIRST_WORDS
from parllel.cages.stepping.row_environments import RowEnvironments
from parllel.cages.workers.control import (
    BY_PIPE,
    CALL,
    COLLECT_AT_ONCE,
    COLLECT_TRUNCATED,
    FAILED,
    GO,
    LOST,
    Control,
    ControlSize,
)
from parllel.cages.workers.environment_share import EnvironmentShare
from parllel.errors import WrongStateError
from parllel.system.processes.placement import Placement

_WAIT_S = 3600.0  # arbitrary: a worker is killed when its parent ends, so it may wait for ever


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of one worker.

    Attributes:
        worker: number of the worker.
        size: layout of the control lines.
        kind, spin_us: the kind of wait, and its longest spin in microseconds.
        shares: the worker's columns in each group, relative to the cage's first.
        reset_automatically, infos: the settings of its environments.
        core: core to pin it to; None leaves the choice to the system.
        others: ids of the main process's thread and of the workers before this one. The worker
            avoids their cores.
        handled: for a worker that replaces another, the number of the last command that was finished.
        lost: groups whose episodes were lost with that worker.
    """

    worker: int
    size: ControlSize
    kind: str
    spin_us: float
    shares: Sequence[slice]
    reset_automatically: bool
    core: int | None
    others: Sequence[int]
    infos: bool = False
    handled: int | None = None
    lost: Sequence[int] = ()


class SynchronizedWorker:
    """Serves the environments of one process until it is asked to close or the parent ends."""

    def __init__(
        self,
        connection: Connection,
        makes: Sequence[Callable[[], RowEnvironments] | None],
        settings: WorkerSettings,
        inherited: Any,
    ) -> None:
        # Shared memory, semaphores and pipes can only be passed when a process starts.
        lines, flags, sleep_slots, wakeup, buffers = inherited
        needs_reset, which = np.asarray(flags)
        self._worker, self._infos = settings.worker, settings.infos
        self._conversation = ChildConversation(connection, buffers)
        self._control = Control(
            settings.size, lines, settings.kind, settings.spin_us, sleep_slots, wakeup
        )
        self._share = EnvironmentShare(
            makes,
            settings.shares,
            needs_reset,
            which,
            reset_automatically=settings.reset_automatically,
            after_row=self._report_rows,
            lost=settings.lost,
        )
        self._handled = settings.handled
        # One for each group, and the last for calls.
        self._post_done = self._control.done_posters(settings.worker)
        self._post_plain = list(self._post_done)
        for group in settings.lost:
            self._post_done[group] = partial(self._post_first, group)
        self._placement = Placement(settings.others)

    def run(self) -> None:
        """Send the spaces, then execute commands in order."""
        # Existing objects stay alive, so the collector need not scan them again. No collection first: in a
        # fork that would touch, and so copy, all of the parent's memory.
        gc.freeze()
        try:
            conversation = self._conversation
            conversation.send(conversation.answer(FIRST_WORDS, self._share.made))
            wait, control = self._control.wait, self._control
            handled, more = self._handled or 0, True
            if self._handled is not None:
                self._set_up()
            while more:
                go = wait.wait(GO, handled, _WAIT_S)
                # Main may have started several groups since: `go` is the latest command, and none may be
                # skipped.
                while more and handled != go:
                    handled, operation, group, row, batch = control.command_after(handled)
                    # Before any command, as calls such as "decorrelate" write rows of the batch too.
                    if batch != self._share.batch:
                        self._share.use_batch(batch)
                    if operation == CALL:
                        more = self._call(handled, row)
                    else:
                        self._share.run(operation, group, row)
                        if self._infos:
                            packed = self._share.packed_infos(group)
                            self._control.put_message(group, self._worker, packed)
                        # After the last write to the row, as main reads the row as soon as it sees the
                        # number.
                        self._post_done[group](handled)
                        # While the agent acts; nothing waits for these two.
                        self._share.prepare(group, row)
                        self._placement.check()
        # SystemExit too, which an environment may raise: main must learn of every end.
        except BaseException as error:
            self._fail(error)
        self._placement.close()
        with contextlib.suppress(Exception):
            self._share.close()

    def _set_up(self) -> None:
        """Answer the only request that comes without a command: the binding of the worker that died."""
        request = self._conversation.next_request()
        if request is None:
            raise EOFError("the main process is gone")
        number, op, args = self._conversation.read_call(request)
        reply = self._conversation.reply_to(number, (), self._share.calls[op], *args)
        self._conversation.send(reply)

    def _post_first(self, group: int, number: int) -> None:
        """Post the first row of a group whose episodes were lost with another worker."""
        self._post_done[group] = self._post_plain[group]
        # Unless random steps, which are not recorded, began new episodes before.
        self._post_done[group](LOST if self._share.lost_row else number)

    def _fail(self, error: BaseException) -> None:
        """Report the failure of this worker to main.

        The environments are closed afterwards, as that may also fail or hang.
        """
        # Before the exception is sent: a long one blocks until main reads the pipe, which main does only
        # after it has seen FAILED. In every line, as main may be waiting for another group or a call, if this
        # worker failed in a prepared reset.
        for post_done in self._post_plain:
            post_done(FAILED)
        self._conversation.fail(error, lambda: self._share.collect(False, True))

    def _report_rows(self, group: int, rows: int) -> None:
        self._control.report_rows(group, self._worker, rows)

    def _read_call(self) -> tuple[str, tuple[Any, ...]]:
        # May wait: main advances `go` before it sends the request to one worker after the other.
        request = self._conversation.next_request()
        if request is None:
            # Raised so that the environments are closed as after any failure.
            raise EOFError("the main process is gone")
        _, op, args = self._conversation.read_call(request)
        return op, args

    def _call(self, number: int, row: int) -> bool:
        """Answer a call; return False after "close", the last command."""
        op, args = "collect", (row == COLLECT_TRUNCATED, row == COLLECT_AT_ONCE)
        if row == BY_PIPE:
            op, args = self._read_call()
        # Collected after every batch, so it uses the faster plain pickle where that suffices.
        plain = op == "collect" and self._share.collects_values
        # After any other error in a step the environment's state is unknown, so the worker ends.
        survived = (WrongStateError,) if op == "decorrelate" else (Exception,)
        function = self._share.calls[op]
        reply = self._conversation.reply_to(number, survived, function, *args, plain=plain)
        # Main awaits the answer to "close" over the pipe, as with every child.
        calls = self._control.size.n_groups
        mailed = op != "close" and self._control.put_message(calls, self._worker, reply)
        # After the mail, which it makes visible; before the pipe, as a long reply blocks until main reads it,
        # which it does only after it has seen the word.
        self._post_done[-1](number)
        if not mailed:
            self._conversation.send(reply)
        return op != "close"


def serve(
    connection: Connection,
    makes: Sequence[Callable[[], RowEnvironments] | None],
    settings: WorkerSettings,
    inherited: Any = None,
) -> None:
    """Run a worker; the target of the child process."""
    # Before the environments are made, so that their threads inherit the core.
    if settings.core is not None and hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(0, {settings.core})
        except OSError as error:
            usable = sorted(os.sched_getaffinity(0))
            raise ValueError(
                f"cores: expected numbers from {usable}, got {settings.core}"
            ) from error
    SynchronizedWorker(connection, makes, settings, inherited).run()
