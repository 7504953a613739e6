"""What runs in the process of an AsynchronousSampler.

    parent -> child    WEIGHTS, published or None         first of all
                       GO, number, elapsed steps          make a batch
                       LOAD, state
                       CLOSE
    child -> parent    REGISTER ...                       introduces a buffer, before the first batch
                       READY, stats, state                the sampler is built
                       BEGUN, number                      the weights have been read: others may be published
                       BATCH, Batch                       it is in a side that is not written until the next
                                                          but one is made
                       DONE, (stats, state)               of LOAD
                       DONE                               of CLOSE
                       ERROR, exception                   of LOAD, which changes nothing, and of CLOSE
                       EXCEPTION, exception               the child ends

At most one request is under way, except CLOSE, which may come at any time and is answered last.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from parllel.agents import Agent
from parllel.buffers import REGISTER, Link
from parllel.cages import TrajInfo
from parllel.processes import EXCEPTION, Channel, pack_exception, preload_in_forkserver
from parllel.samplers.batch_sides import Side, sides_of
from parllel.samplers.published_weights import Published, WeightsReader, rest_of
from parllel.samplers.sampler import Sampler
from parllel.types import State

WEIGHTS, GO, LOAD, CLOSE = b"W", b"G", b"L", b"Q"
READY, BEGUN, BATCH, DONE, ERROR = b"R", b"B", b"D", b"O", b"E"
GO_REQUEST = struct.Struct("<cqq")  # GO, number, elapsed steps
BEGUN_REPLY = struct.Struct("<cq")  # BEGUN, number

preload_in_forkserver(__name__)


class Batch(NamedTuple):
    """A finished batch.

    Attributes:
        number: of its request.
        version: of the weights that it was made with.
        side: where it is.
        steps: of environments, that it holds.
        stats, state: as they were after it.
    """

    number: int
    version: int
    side: Side
    steps: int
    trajs: list[TrajInfo]
    stats: dict[str, Any]
    state: State


class _HangUpError(Exception):
    """The parent is gone, or wants nothing any more."""


class SamplingWorker:
    """Build a sampler and let it make batches, until it is told to close or the pipe hangs up."""

    def __init__(self, connection: Connection) -> None:
        self._channel = Channel(connection)
        self._link = Link(connection)
        self._sampler: Sampler | None = None

    def run(self, build: Callable[[], Sampler]) -> None:
        """Be the child."""
        try:
            with contextlib.suppress(_HangUpError):
                self._serve(build)
        except BaseException as error:
            # Word goes first, as closing may fail too, or hang. Nobody may be left to hear it.
            with contextlib.suppress(OSError):
                self._send(EXCEPTION + pack_exception(error))
        if self._sampler is not None:
            with contextlib.suppress(Exception):
                self._sampler.close()

    def _serve(self, build: Callable[[], Sampler]) -> None:
        published = self._link.loads(self._request(WEIGHTS))
        sampler = self._sampler = build()
        if not isinstance(sampler, Sampler):
            self._sampler = None
            raise TypeError(f"build: expected it to return a Sampler, got {type(sampler).__name__}")
        agent = _agent_of(sampler)
        reader = _reader_of(sampler, agent, published)
        self._side_of = sides_of(sampler)
        ready = (sampler.stats, _state_of(sampler, agent))
        self._send(READY + self._link.dumps(ready))
        while True:
            message = self._read()
            kind = message[:1]
            if kind == GO:
                _, number, elapsed_steps = GO_REQUEST.unpack(message)
                self._make_batch(number, elapsed_steps, sampler, agent, reader)
            elif kind == LOAD:
                self._answer(_load_state, sampler, agent, self._link.loads(message[1:]))
            elif kind == REGISTER:
                self._link.accept(message)
            elif kind == CLOSE:
                self._sampler = None
                self._answer(sampler.close)
                return

    def _make_batch(
        self,
        number: int,
        elapsed_steps: int,
        sampler: Sampler,
        agent: Agent | None,
        reader: WeightsReader | None,
    ) -> None:
        version = 0 if reader is None else reader.load()
        self._send(BEGUN_REPLY.pack(BEGUN, number))
        samples, trajs = sampler.collect_batch(elapsed_steps)
        steps = sampler.count_steps(samples)
        side = self._side_of(samples)
        state = _state_of(sampler, agent)
        batch = Batch(number, version, side, steps, trajs, sampler.stats, state)
        self._send(BATCH + self._link.dumps(tuple(batch)))

    def _answer(self, function: Callable[..., Any], *args: Any) -> None:
        """Do what leaves the sampler well if it fails, and say how it went."""
        try:
            reply = DONE + self._link.dumps(function(*args))
        except Exception as error:
            reply = ERROR + pack_exception(error)
        self._send(reply)

    def _request(self, wanted: bytes) -> bytes:
        """Return the content of the first request, having taken in what it introduces."""
        while True:
            message = self._read()
            if message[:1] == REGISTER:
                self._link.accept(message)
            elif message[:1] == wanted:
                return message[1:]
            else:  # closed before it was built
                raise _HangUpError

    def _read(self) -> bytes:
        try:
            return self._channel.read(None)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise _HangUpError from None

    def _send(self, message: bytes) -> None:
        # The parent may be optimising for as long as it likes.
        self._channel.write(message, timeout_s=math.inf)


def _agent_of(sampler: Sampler) -> Agent | None:
    agent = getattr(getattr(sampler, "handler", None), "agent", None)
    return agent if isinstance(agent, Agent) else None


def _reader_of(
    sampler: Sampler, agent: Agent | None, published: Published | None
) -> WeightsReader | None:
    if published is None:
        return None
    if agent is None:
        raise TypeError(
            f"{type(sampler).__name__}: expected a sampler with `handler.agent`, which the weights go to"
        )
    return WeightsReader(agent, published)


def _state_of(sampler: Sampler, agent: Agent | None) -> State:
    """Return the states of the sampler and, but for its weights, of the agent."""
    # With those of the environments it would be the most of what a batch sends.
    return {
        "sampler": sampler.state(environments=False),
        "agent": {} if agent is None else rest_of(agent),
    }


def _load_state(
    sampler: Sampler, agent: Agent | None, state: State
) -> tuple[dict[str, Any], State]:
    """Load, and return what the parent is to know from now on."""
    sampler.load_state(state["sampler"])
    if agent is not None:
        agent.load_state({**agent.state(), **state["agent"]})
    return sampler.stats, _state_of(sampler, agent)


def serve(connection: Connection, build: Callable[[], Sampler]) -> None:
    """Run a worker; the target of the child process."""
    SamplingWorker(connection).run(build)
