"""What runs in a worker of a SynchronizedProcessCage.

    main -> worker     go: a number                     rows: nothing else is sent
                       CALL, number, (op, arguments)    over the pipe, after the go that announces it
    worker -> main     done: that number                what it wrote to the batch is visible then;
                       a byte through the wakeup pipe   only if main listens, see wakeup_pipe.py
                       ANSWER, ERROR                    in the mail box, or over the pipe if it is too long
                       EXCEPTION                        the worker ends; all its done words are negative then.
                                                        Afterwards what main had not collected yet

A reply in the mail box is written before the done word, which makes it visible; one over the pipe is sent
after that word: main reads the pipe only when it has seen it, and a long reply needs a reader to get through.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    Control,
    ControlSize,
)
from parllel.cages.workers.environment_share import EnvironmentShare
from parllel.errors import WrongStateError
from parllel.system.processes.placement import Placement

_WAIT_S = 3600.0  # any time will do: a worker ends with its parent, so no wait is in vain


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker needs to know at its start.

    Attributes:
        worker: its number.
        size: of the control lines.
        kind, spin_us: of the wait.
        shares: its columns in each group, relative to the cage's first.
        reset_automatically: as its environments are made.
        core: to run on; None leaves the choice to the system.
        others: ids of main's thread and of the workers before this one, whose cores are to be avoided.
    """

    worker: int
    size: ControlSize
    kind: str
    spin_us: float
    shares: Sequence[slice]
    reset_automatically: bool
    core: int | None
    others: Sequence[int]


class SynchronizedWorker:
    """Serve the environments of one process until it is asked to close or the parent ends."""

    def __init__(
        self,
        connection: Connection,
        makes: Sequence[Callable[[], RowEnvironments] | None],
        settings: WorkerSettings,
        inherited: Any,
    ) -> None:
        # Memory in "shared" storage, semaphores and pipes can only be handed over when a process starts.
        lines, needs_reset, sleep_slots, wakeup, buffers = inherited
        self._worker = settings.worker
        self._conversation = ChildConversation(connection, buffers)
        self._control = Control(
            settings.size, lines, settings.kind, settings.spin_us, sleep_slots, wakeup
        )
        self._share = EnvironmentShare(
            makes,
            settings.shares,
            np.asarray(needs_reset),
            reset_automatically=settings.reset_automatically,
            after_row=self._report_rows,
        )
        # One for each group, and the last for calls.
        self._post_done = self._control.done_posters(settings.worker)
        self._placement = Placement(settings.others)

    def run(self) -> None:
        """Follow the commands in their order, having sent the spaces first."""
        # What is there now stays: the collector need not look at it again and again. It is not asked to
        # collect first: in a fork it would touch, and so copy, all that the parent has.
        gc.freeze()
        try:
            conversation = self._conversation
            conversation.send(conversation.answer(FIRST_WORDS, self._share.made))
            wait, control = self._control.wait, self._control
            handled, more = 0, True
            while more:
                go = wait.wait(GO, handled, _WAIT_S)
                # Main may have started several groups since: `go` is the last command, and all count.
                while more and handled != go:
                    handled, operation, group, row, batch = control.command_after(handled)
                    # Before any command: a call such as "decorrelate" writes rows of the batch, too.
                    if batch != self._share.batch:
                        self._share.use_batch(batch)
                    if operation == CALL:
                        more = self._call(handled, row)
                    else:
                        self._share.run(operation, group, row)
                        # After the last write to the row: main reads it as soon as it sees the number.
                        self._post_done[group](handled)
                        # Only now, while the agent acts: nothing waits for what these do.
                        self._share.prepare(group, row)
                        self._placement.check()
        # SystemExit too, which an environment may raise: main is to hear of every end.
        except BaseException as error:
            self._fail(error)
        self._placement.close()
        with contextlib.suppress(Exception):
            self._share.close()

    def _fail(self, error: BaseException) -> None:
        """Report that this worker does nothing any more, and why.

        Closing comes afterwards, as that may fail too, or hang.
        """
        # Before the exception is sent: a long one does not fit into the pipe, and main, waiting for a word,
        # reads the pipe only once it has seen this. In every line, as it may wait for any of them: of another
        # group, or of a call, if this failed in a reset ahead of time.
        for post_done in self._post_done:
            post_done(FAILED)
        self._conversation.fail(error, lambda: self._share.collect(False, True))

    def _report_rows(self, group: int, rows: int) -> None:
        self._control.report_rows(group, self._worker, rows)

    def _read_call(self) -> tuple[str, tuple[Any, ...]]:
        # Waits: main advances `go` first, and then sends to one worker after the other.
        request = self._conversation.next_request()
        if request is None:
            # Raised, so that the environments are closed as after any failure.
            raise EOFError("the main process is gone")
        _, op, args = self._conversation.read_call(request)
        return op, args

    def _call(self, number: int, row: int) -> bool:
        """Answer a call; return whether there will be more commands."""
        op, args = "collect", (row == COLLECT_TRUNCATED, row == COLLECT_AT_ONCE)
        if row == BY_PIPE:
            op, args = self._read_call()
        # Collected after every batch, so it is worth the quicker pickling where that can be had.
        plain = op == "collect" and self._share.collects_values
        # After any other failure in a step the environment's state is unknown, so the worker ends.
        survived = (WrongStateError,) if op == "decorrelate" else (Exception,)
        function = self._share.calls[op]
        reply = self._conversation.reply_to(number, survived, function, *args, plain=plain)
        # Main waits for the answer to "close" on the pipe alone, as it does with every child.
        mailed = op != "close" and self._control.put_answer(self._worker, reply)
        # The mail before this word, which makes it visible; the pipe after it, as sending a long reply ends
        # only when main reads, and main reads once it has seen the word.
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
    # Before the environments are made, whose threads inherit the core.
    if settings.core is not None and hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(0, {settings.core})
        except OSError as error:
            usable = sorted(os.sched_getaffinity(0))
            raise ValueError(f"cores: expected some of {usable}, got {settings.core}") from error
    SynchronizedWorker(connection, makes, settings, inherited).run()
