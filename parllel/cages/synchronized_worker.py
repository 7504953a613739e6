"""What runs in a worker of a SynchronizedProcessCage.

    main -> worker     go: a number                     rows: nothing else is sent
                       CALL, number, (op, arguments)    over the pipe, after the go that announces it
    worker -> main     done: that number                what it wrote to the batch is visible then
                       ANSWER, ERROR                    in the mail box, or over the pipe if it is too long
                       EXCEPTION                        the worker ends; all its done words are negative then.
                                                        Afterwards what nobody had collected yet

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

from parllel.buffers import FIRST_WORDS, ChildConversation
from parllel.cages.control import (
    BY_PIPE,
    CALL,
    COLLECT_AT_ONCE,
    COLLECT_TRUNCATED,
    FAILED,
    GO,
    Control,
    ControlSize,
)
from parllel.cages.environment_share import EnvironmentShare
from parllel.cages.environments import Environments
from parllel.errors import WrongStateError
from parllel.processes import Placement

_WAIT_S = 3600.0  # a worker ends with its parent, whatever it waits for


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker is told at its start.

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
    """Serve the environments of one process until it is told to close or the parent ends."""

    def __init__(
        self,
        connection: Connection,
        makes: Sequence[Callable[[], Environments] | None],
        settings: WorkerSettings,
        inherited: Any,
    ) -> None:
        lines, needs_reset, sleep_slots, buffers = inherited
        self._worker = settings.worker
        self._size = settings.size
        self._conversation = ChildConversation(connection, buffers)
        self._control = Control(settings.size, lines, settings.kind, settings.spin_us, sleep_slots)
        self._participant = EnvironmentShare(
            makes,
            settings.shares,
            np.asarray(needs_reset),
            reset_automatically=settings.reset_automatically,
            after_row=self._tell_rows,
        )
        self._placement = Placement(settings.others)

    def run(self) -> None:
        """Follow the commands in their order; the first words tell the spaces."""
        # What is there now stays: the collector need not look at it again and again. It is not asked to
        # collect first: in a fork it would touch, and so copy, all that the parent has.
        gc.freeze()
        try:
            conversation = self._conversation
            conversation.send(conversation.answer(FIRST_WORDS, self._participant.made))
            wait, control = self._control.wait, self._control
            handled, more = 0, True
            while more:
                go = wait.wait(GO, handled, _WAIT_S)
                while more and handled != go:
                    handled = self._size.following(handled)
                    operation, group, row, batch = control.record(handled)
                    if batch != self._participant.batch:
                        self._participant.use_batch(batch)
                    if operation == CALL:
                        more = self._call(handled, row)
                    else:
                        self._participant.run(operation, group, row)
                        wait.post(self._size.done_line(group, self._worker), handled)
                        self._participant.prepare(group, row)
                        self._placement.check()
        except BaseException as error:
            self._fail(error)
        self._placement.close()
        with contextlib.suppress(Exception):
            self._participant.close()

    def _fail(self, error: BaseException) -> None:
        """Say that nothing will be done any more, and why.

        All that main may wait for says so: it may have gone on to something else. It reads once it has seen
        that, and closing comes afterwards, as that may fail too, or hang.
        """
        for group in range(self._size.n_groups + 1):
            self._control.wait.post(self._size.done_line(group, self._worker), FAILED)
        self._conversation.fail(error, lambda: self._participant.collect(False, True))

    def _tell_rows(self, group: int, rows: int) -> None:
        self._control.tell_rows(group, self._worker, rows)

    def _read_call(self) -> tuple[str, tuple[Any, ...]]:
        request = self._conversation.next_request()
        if request is None:
            raise EOFError("the main process is gone")
        _, op, args = self._conversation.read_call(request)
        return op, args

    def _call(self, number: int, row: int) -> bool:
        """Answer a call; return whether there will be more commands."""
        op, args = "collect", (row == COLLECT_TRUNCATED, row == COLLECT_AT_ONCE)
        if row == BY_PIPE:
            op, args = self._read_call()
        plain = op == "collect" and self._participant.collects_values
        # Of another failure in a step the environment's state is unknown, so the worker ends.
        survived = (WrongStateError,) if op == "decorrelate" else (Exception,)
        function = self._participant.calls[op]
        reply = self._conversation.reply_to(number, survived, function, *args, plain=plain)
        done = self._size.done_line(self._size.n_groups, self._worker)
        mailed = op != "close" and self._control.put_mail(self._worker, reply)
        self._control.wait.post(done, number)
        if not mailed:
            self._conversation.send(reply)
        return op != "close"


def serve(
    connection: Connection,
    makes: Sequence[Callable[[], Environments] | None],
    settings: WorkerSettings,
    inherited: Any = None,
) -> None:
    """Run a worker; the target of the child process."""
    if settings.core is not None and hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(0, {settings.core})
        except OSError as error:
            usable = sorted(os.sched_getaffinity(0))
            raise ValueError(f"cores: expected some of {usable}, got {settings.core}") from error
    SynchronizedWorker(connection, makes, settings, inherited).run()
