"""What runs in the process of a ProcessCage.

    parent -> worker   ROW, op, sequence, row, batch, everyone   steps and resets of bound rows: no pickling
                       CALL, (sequence, op, arguments)       everything else, buffers by name
                       REGISTER ...                          introduces a buffer
    worker -> parent   ROW, sequence, flags                  flags: what there is to collect
                       CALL, (sequence, result)
                       ERROR, sequence, exception            of a request that leaves the worker well
                       EXCEPTION, exception                  the worker ends
                       CALL, (LEFT_BEHIND, collected)        after that: what nobody had asked for yet

Every reply carries the sequence number of its request, so a late one is never taken for another.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from parllel.buffers import REGISTER, Link, NamedArrayTuple
from parllel.cages.bound_places import Bound, places_of
from parllel.cages.environments import Environments
from parllel.cages.rows import Rows
from parllel.cages.step_result import deliver, plain_action
from parllel.cages.vectorized_cage import set_env_attribute
from parllel.errors import WrongStateError
from parllel.processes import EXCEPTION, Channel, pack_exception

ROW, CALL, ERROR = b"R", b"C", b"E"
ROW_REQUEST = struct.Struct("<cBIiI?")  # ROW, op, sequence, row, batch, everyone
ROW_REPLY = struct.Struct("<cI???")  # ROW, sequence, needs_reset, completed, final
SEQUENCE = struct.Struct("<cI")
LEFT_BEHIND = -1  # number of the answer to a question that a worker which failed is never asked
OP_STEP, OP_RANDOM, OP_RESET = range(3)

# What a method of the environment is answered with: the parent makes a stand-in of it.
METHOD = "parllel: a method"


class Worker:
    """Serve one environment over a connection until it is told to close or the pipe hangs up."""

    def __init__(
        self, connection: Connection, make: Callable[[], Environments], inherited: Any
    ) -> None:
        self._channel = Channel(connection)
        self._link = Link(connection)
        if inherited is not None:
            self._link.adopt(inherited)
        self._envs = make()
        self._rows: Rows | None = None
        self._row_ops = {
            OP_STEP: lambda t, everyone: self._envs.step_row(t),
            OP_RANDOM: lambda t, everyone: self._envs.random_row(t),
            OP_RESET: lambda t, everyone: self._envs.reset_rows(t, everyone=everyone),
        }
        # Of a failure in the first kind the environment's state is unknown, so the worker ends.
        self._step_calls: dict[str, Callable[..., Any]] = {
            "step": self._step,
            "random_step": self._random_step,
            "reset": self._reset,
            "decorrelate": self._decorrelate,
        }
        self._calls: dict[str, Callable[..., Any]] = {
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
        """Answer requests; the first message tells the spaces."""
        try:
            self._send(CALL + self._link.dumps((0, self._envs.spaces)))
            while self._answer():
                pass
        except BaseException as error:
            # Word goes first, as closing may fail too, or hang. Nobody may be left to hear it.
            with contextlib.suppress(OSError):
                self._send(EXCEPTION + pack_exception(error))
            with contextlib.suppress(Exception):
                left_behind = self._envs.take_completed(), self._final(False)
                self._send(CALL + self._link.dumps((LEFT_BEHIND, left_behind)))
        with contextlib.suppress(Exception):
            self._envs.close()

    def _answer(self) -> bool:
        """Answer one request; return whether there will be more."""
        try:
            message = self._channel.read(None)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            return False  # the parent is gone or has closed the cage
        kind = message[:1]
        if kind == ROW:
            self._row(message)
        elif kind == REGISTER:
            self._link.accept(message)
        else:
            return self._call(*self._link.loads(message[1:]))
        return True

    def _send(self, message: bytes) -> None:
        # The parent takes answers while it waits for them; meanwhile there is no hurry.
        self._channel.write(message, timeout_s=math.inf)

    def _row(self, message: bytes) -> None:
        _, op, sequence, t, batch, everyone = ROW_REQUEST.unpack(message)
        envs = self._envs
        try:
            self._use_batch(batch)
            self._row_ops[op](t, everyone)
        except WrongStateError as error:  # nothing has happened
            self._send(SEQUENCE.pack(ERROR, sequence) + pack_exception(error))
            return
        self._send(
            ROW_REPLY.pack(
                ROW, sequence, bool(envs.needs_reset[0]), envs.has_completed, envs.has_final
            )
        )
        # The parent is on its way already: an ended environment resets in its shadow.
        envs.prepare(t)

    def _call(self, sequence: int, op: str, args: tuple[Any, ...]) -> bool:
        begun = False
        try:
            if op == "step":
                args = (plain_action(self._envs.spaces, args[0]), *args[1:])
            begun = op in self._step_calls
            result = self._step_calls[op](*args) if begun else self._calls[op](*args)
            reply = CALL + self._link.dumps((sequence, result))
        except Exception as error:
            if op == "close" or (begun and not isinstance(error, WrongStateError)):
                raise
            reply = SEQUENCE.pack(ERROR, sequence) + pack_exception(error)
        self._send(reply)
        return op != "close"

    def _final(self, truncated_only: bool) -> list[tuple[Any, ...]]:
        return [tuple(final) for final in self._envs.take_final(truncated_only=truncated_only)]

    def _load_states(self, states: list[Any], salt: int) -> bool:
        self._envs.load_states(states, salt)
        return bool(self._envs.needs_reset[0])

    def _bind(self, action: Any, fields: dict[str, Any], lo: int, hi: int) -> Bound:
        self._rows = self._envs.bind(action, NamedArrayTuple(**fields), slice(lo, hi))
        return places_of(self._rows)

    def _use_batch(self, number: int) -> None:
        """Go over to the batch that a request is for."""
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
        return METHOD if callable(value) else value

    def _method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._envs.envs[0].get_wrapper_attr(name)(*args, **kwargs)


def serve(connection: Connection, make: Callable[[], Environments], inherited: Any = None) -> None:
    """Run a worker; the target of the child process."""
    Worker(connection, make, inherited).run()
