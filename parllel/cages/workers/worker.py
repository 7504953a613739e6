"""Worker process of a ProcessCage.

    parent -> worker   ROW, number, operation, row, batch      steps and resets of bound rows: no pickling
                       CALL, number, (op, arguments)           everything else, buffers by name
    worker -> parent   ROW, number, flags, infos               needs_reset; is there anything to collect
                       ANSWER, ERROR, EXCEPTION                as in every conversation
    batch, in shared memory   read: actions of row t.  written: rows t and t + 1, from a request to its reply

Uses the same EnvironmentShare as a worker of a SynchronizedProcessCage, with a single environment. After an
EXCEPTION it sends the episodes and final observations that the parent has not collected.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from parllel.buffers.child_conversation import ChildConversation
from parllel.buffers.conversation import FIRST_WORDS
from parllel.cages.stepping.environments import Environments
from parllel.cages.stepping.row_environments import RowEnvironments
from parllel.cages.stepping.step_methods import plain_action, take_plain
from parllel.cages.stepping.step_result import StepResult
from parllel.cages.workers.environment_share import EnvironmentShare
from parllel.errors import WrongStateError
from parllel.types import State

ROW = b"R"
# "<": without padding, the same in both processes. They begin with HEAD, like every message with a number.
ROW_REQUEST = struct.Struct("<ciBiI")  # ROW, number, operation as in control.py, row, batch
ROW_REPLY = struct.Struct("<ci??")  # ROW, number, needs_reset, whether there are results to collect
_PLAIN = ("step", "random_step", "reset")
_STEP_CALLS = (*_PLAIN, "decorrelate")


class Worker:
    """Serves one environment over a connection until it is asked to close or the pipe is closed."""

    def __init__(
        self,
        connection: Connection,
        make: Callable[[], RowEnvironments],
        infos: bool,
        replaces: bool,
        inherited: Any,
    ) -> None:
        self._infos = infos
        self._conversation = ChildConversation(connection, inherited)
        self._envs = envs = make()
        # A list of factories always gives Environments, which are stepped one by one.
        assert isinstance(envs, Environments)
        self._stepper = envs.stepper
        self._share = share = EnvironmentShare(
            [lambda: envs],
            [slice(0, 1)],
            np.ones(1, bool),
            np.zeros(1, bool),
            reset_automatically=True,  # the share's flags are unused: replies carry the environment's own
            after_row=lambda group, rows: None,
            lost=[0] if replaces else (),
        )
        self._calls: dict[str, Callable[..., Any]] = {
            **share.calls,
            "decorrelate": self._decorrelate,
            "load_states": self._load_states,
        }
        for op in _PLAIN:
            self._calls[op] = partial(self._plain, op)

    def run(self) -> None:
        """Send the spaces, then answer requests."""
        conversation = self._conversation
        try:
            conversation.send(conversation.answer(FIRST_WORDS, self._envs.spaces))
            more = True
            while more and (request := conversation.next_request()) is not None:
                more = self._row(request) if request[:1] == ROW else self._call(request)
        # SystemExit too, which an environment may raise. Reported before anything is closed, as closing may
        # also fail or hang.
        except BaseException as error:
            conversation.fail(error, lambda: self._share.collect(False, True))
        # After "close" there is nothing left to close; after a failure the error has been sent.
        with contextlib.suppress(Exception):
            self._share.close()

    def _row(self, request: bytes) -> bool:
        _, number, operation, t, batch = ROW_REQUEST.unpack(request)
        envs, conversation = self._envs, self._conversation
        try:
            self._use_batch(batch)
            self._share.run(operation, 0, t)
        # Raised before the environment did anything, so the worker continues. After any other error the
        # environment's state is unknown, and the worker ends.
        except WrongStateError as error:
            conversation.send(conversation.error(number, error))
            return True
        # After the last write to the row, which the parent reads as soon as it has this reply.
        conversation.send(
            ROW_REPLY.pack(
                ROW, number, bool(envs.needs_reset[0]), envs.has_completed or envs.has_final
            )
            + (self._share.packed_infos(0) if self._infos else b"")
        )
        # After the reply, so that the parent does not wait while an ended environment is reset.
        envs.prepare(t)
        return True

    def _call(self, request: bytes) -> bool:
        """Answer a call; return False after "close", the last request."""
        conversation = self._conversation
        number, op, args = conversation.read_call(request)
        # After any other error in a step the environment's state is unknown, so the worker ends.
        survived = (WrongStateError,) if op in _STEP_CALLS else (Exception,)
        # Converted before the step: a wrong action is refused, and the environment is unchanged.
        try:
            if op == "step":
                args = (args[0], plain_action(self._envs.spaces, args[1]))
        except Exception as error:
            conversation.send(conversation.error(number, error))
        else:
            # Collected after most batches, so it uses the faster plain pickle where that suffices.
            plain = op == "collect" and self._share.collects_values
            function = self._calls[op]
            reply = conversation.reply_to(number, survived, function, *args, plain=plain)
            conversation.send(reply)
        return op != "close"

    def _use_batch(self, number: int) -> None:
        """Switch to the batch of a request."""
        # Every request carries its number; the parent sends nothing when the batch changes.
        if number != self._share.batch:
            self._share.use_batch(number)

    def _decorrelate(self, counts: Sequence[int], t: int, batch: int) -> None:
        self._use_batch(batch)
        self._share.decorrelate(counts, t)

    def _load_states(self, states: Sequence[State], salt: int) -> bool:
        self._share.load_states(states, salt)
        return bool(self._envs.needs_reset[0])

    def _plain(self, op: str, outs: dict[str, Any], *args: Any) -> tuple[StepResult, bool]:
        # In one answer: asking for the flag separately would cost a second round trip per step.
        result = take_plain(self._stepper, op, outs, *args)
        return result, bool(self._envs.needs_reset[0])


def serve(
    connection: Connection,
    make: Callable[[], RowEnvironments],
    infos: bool,
    replaces: bool,
    inherited: Any = None,
) -> None:
    """Run a worker; the target of the child process.

    replaces: whether it replaces a process that died.
    """
    Worker(connection, make, infos, replaces, inherited).run()
