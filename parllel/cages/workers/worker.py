"""What runs in the process of a ProcessCage.

    parent -> worker   ROW, number, op, row, batch, everyone   steps and resets of bound rows: no pickling
                       CALL, number, (op, arguments)           everything else, buffers by name
    worker -> parent   ROW, number, flags                      flags: what there is to collect
                       ANSWER, ERROR, EXCEPTION                as in every conversation
    batch, in shared memory   read: actions of row t.  written: rows t and t + 1, from a request to its reply

After an EXCEPTION it hands over the episodes and final observations that the parent had not asked for yet.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from parllel.buffers.child_conversation import ChildConversation
from parllel.buffers.conversation import FIRST_WORDS
from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.cages.stepping.env_attributes import set_env_attribute
from parllel.cages.stepping.environments import Environments
from parllel.cages.stepping.rows import Rows
from parllel.cages.stepping.step_result import deliver, plain_action
from parllel.cages.workers.bound_places import Bound, places_of
from parllel.cages.workers.remote_cage import METHOD
from parllel.errors import WrongStateError

ROW = b"R"
# "<": without gaps, and alike in both processes; they begin with HEAD, as every message with a number does.
ROW_REQUEST = struct.Struct("<ciBiI?")  # ROW, number, op, row, batch, everyone
ROW_REPLY = struct.Struct("<ci???")  # ROW, number, needs_reset, completed, final
OP_STEP, OP_RANDOM, OP_RESET = range(3)
_STEP_CALLS = ("step", "random_step", "reset", "decorrelate")


class Worker:
    """Serve one environment over a connection until it is asked to close or the pipe hangs up."""

    def __init__(
        self, connection: Connection, make: Callable[[], Environments], inherited: Any
    ) -> None:
        self._conversation = ChildConversation(connection, inherited)
        self._envs = make()
        self._rows: Rows | None = None
        # Apart from the calls, as these are sent for each step: numbers instead of names, nothing pickled.
        self._row_ops = {
            OP_STEP: lambda t, everyone: self._envs.step_row(t),
            OP_RANDOM: lambda t, everyone: self._envs.random_row(t),
            OP_RESET: lambda t, everyone: self._envs.reset_rows(t, everyone=everyone),
        }
        self._calls: dict[str, Callable[..., Any]] = {
            "step": self._step,
            "random_step": self._random_step,
            "reset": self._reset,
            "decorrelate": self._decorrelate,
            "bind": self._bind,
            "completed": self._envs.take_completed,
            "final": self._final,
            "states": self._envs.states,
            "load_states": self._load_states,
            "get": self._get,
            "set": lambda name, value: set_env_attribute(self._envs.envs[0], name, value),
            "method": self._method,
            "close": self._envs.close,
        }

    def run(self) -> None:
        """Answer requests, having sent the spaces first."""
        conversation = self._conversation
        try:
            conversation.send(conversation.answer(FIRST_WORDS, self._envs.spaces))
            more = True
            while more and (request := conversation.next_request()) is not None:
                more = self._row(request) if request[:1] == ROW else self._call(request)
        # SystemExit too, which an environment may raise. Reported before anything is closed, as that may
        # fail too, or hang.
        except BaseException as error:
            conversation.fail(error, lambda: (self._envs.take_completed(), self._final(False)))
        # After "close" this does nothing; after a failure its reason has been sent.
        with contextlib.suppress(Exception):
            self._envs.close()

    def _row(self, request: bytes) -> bool:
        _, number, op, t, batch, everyone = ROW_REQUEST.unpack(request)
        envs, conversation = self._envs, self._conversation
        try:
            self._use_batch(batch)
            self._row_ops[op](t, everyone)
        # Raised before the environment did anything, so all goes on. After any other error its state is
        # unknown, and the worker ends.
        except WrongStateError as error:
            conversation.send(conversation.error(number, error))
            return True
        # After the last write to the row, which the parent reads as soon as it has this.
        conversation.send(
            ROW_REPLY.pack(
                ROW, number, bool(envs.needs_reset[0]), envs.has_completed, envs.has_final
            )
        )
        # After the reply: the parent goes on, and need not wait while an ended environment is reset.
        envs.prepare(t)
        return True

    def _call(self, request: bytes) -> bool:
        """Answer a call; return whether there will be more requests."""
        conversation = self._conversation
        number, op, args = conversation.read_call(request)
        # After any other failure in a step the environment's state is unknown, so the worker ends.
        survived = (WrongStateError,) if op in _STEP_CALLS else (Exception,)
        # Apart from the step: an action that does not fit is refused, and the environment is as it was.
        try:
            if op == "step":
                args = (plain_action(self._envs.spaces, args[0]), *args[1:])
        except Exception as error:
            conversation.send(conversation.error(number, error))
        else:
            conversation.send(conversation.reply_to(number, survived, self._calls[op], *args))
        return op != "close"

    def _final(self, truncated_only: bool) -> list[tuple[Any, ...]]:
        return [tuple(final) for final in self._envs.take_final(truncated_only=truncated_only)]

    def _load_states(self, states: list[Any], salt: int) -> bool:
        self._envs.load_states(states, salt)
        return bool(self._envs.needs_reset[0])

    def _bind(self, action: Any, fields: dict[str, Any], lo: int, hi: int) -> Bound:
        self._rows = self._envs.bind(action, NamedArrayTuple(**fields), slice(lo, hi))
        # The parent compares them with its own column before it asks for a row.
        return places_of(self._rows)

    def _use_batch(self, number: int) -> None:
        """Change to the batch that a request is for."""
        # Every request says which: the parent sends nothing when the batch changes.
        if self._rows is not None and number != self._rows.batch:
            self._rows.use_batch(number)

    def _decorrelate(self, counts: list[int], t: int, batch: int) -> None:
        self._use_batch(batch)
        self._envs.decorrelate(counts, t)

    def _step(self, action: Any, outs: dict[str, Any]) -> Any:
        step = self._envs.stepper.step_one(0, action)
        return deliver(step._asdict(), outs), bool(self._envs.needs_reset[0])

    def _random_step(self, outs: dict[str, Any]) -> Any:
        action, step = self._envs.stepper.random_one(0)
        return deliver({"action": action, **step._asdict()}, outs), bool(self._envs.needs_reset[0])

    def _reset(self, outs: dict[str, Any]) -> Any:
        observation, info = self._envs.stepper.reset_one(0)
        result = deliver({"observation": observation, "info": info}, outs)
        return result, bool(self._envs.needs_reset[0])

    def _get(self, name: str) -> Any:
        value = self._envs.envs[0].get_wrapper_attr(name)
        # A method would be pickled with its environment: the parent calls it by name instead.
        return METHOD if callable(value) else value

    def _method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._envs.envs[0].get_wrapper_attr(name)(*args, **kwargs)


def serve(connection: Connection, make: Callable[[], Environments], inherited: Any = None) -> None:
    """Run a worker; the target of the child process."""
    Worker(connection, make, inherited).run()
