"""Worker process of an AsynchronousSampler.

    parent -> child   CALL, number, (op, arguments)
                        build(published or None)      the first request
                        batch(elapsed steps)
                        load_state(state)
                        columns()                       of several learners, once
                        close()
    child -> parent   REGISTER ...                    introduces a buffer, before the first batch
                      BEGUN, number                   of a batch: the weights have been read
                      ANSWER, number, value           of a batch, in a side that is not written until the next
                                                      but one is made
                      ERROR, number, exception        of load_state, which changes nothing, and of close
                      EXCEPTION, exception            of all others: the child ends

BEGUN is sent after the weights were read and before the first step; from then on the parent may write them.
The ANSWER is sent after the last write to the side; the pipe's system calls order the memory accordingly.

At most one request is unanswered, except for close, which may arrive at any time and is answered last.

    weights   written by the parent, between BEGUN and the next batch       read here, before BEGUN
    sides     written here, one and the other alternately                   read by the parent, after ANSWER
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from parllel.agents.agent import Agent
from parllel.agents.weights import state_without_weights
from parllel.buffers.child_conversation import ChildConversation
from parllel.buffers.conversation import HEAD
from parllel.cages.traj_info import TrajInfo
from parllel.samplers.batch_sampler import BatchSampler
from parllel.samplers.batch_sides import BatchSide, sides_of
from parllel.samplers.cage_columns import seed_keys
from parllel.samplers.published_weights import PublishedWeights, WeightsReader
from parllel.samplers.sampler import Sampler
from parllel.system.processes.fork_server import preload_in_forkserver
from parllel.types import State

BEGUN = b"B"

# Imported once by the fork server, instead of by each sampling process.
preload_in_forkserver(__name__)


class Batch(NamedTuple):
    """A finished batch.

    Attributes:
        version: version of the weights used.
        side: where the batch is stored.
        steps: number of environment steps in the batch.
        stats, state: the sampler's stats and state after the batch.
    """

    version: int
    side: BatchSide
    steps: int
    trajs: list[TrajInfo]
    stats: dict[str, Any]
    state: State


class SamplingWorker:
    """Builds a sampler and collects batches with it until it is asked to close or the pipe is closed."""

    def __init__(self, connection: Connection, build: Callable[[], Sampler]) -> None:
        self._conversation = ChildConversation(connection)
        # Called on the first request, which brings the published weights.
        self._build = build
        self._sampler: Sampler | None = None

    def run(self) -> None:
        """Answer requests until "close"."""
        conversation = self._conversation
        try:
            more = True
            # None: the parent has ended or closed the pipe.
            while more and (request := conversation.next_request()) is not None:
                more = self._call(*conversation.read_call(request))
        # SystemExit too. Reported before anything is closed, as closing may also fail or hang.
        except BaseException as error:
            conversation.fail(error)
        with contextlib.suppress(Exception):
            self._close()

    def _call(self, number: int, op: str, args: tuple[Any, ...]) -> bool:
        """Answer a call; return False after "close", the last one."""
        conversation = self._conversation
        # An error in a batch leaves environments and agent in the middle of a row, so the process ends. A
        # state that does not fit is refused before anything has changed, so the process continues.
        if op == "build":
            reply = conversation.reply_to(number, (), self._make_sampler, *args)
        elif op == "batch":
            reply = conversation.reply_to(number, (), self._make_batch, number, *args)
        elif op == "columns":
            reply = conversation.reply_to(number, (), self._columns)
        elif op == "load_state":
            reply = conversation.reply_to(number, (Exception,), self._load_state, *args)
        else:
            assert op == "close"
            reply = conversation.reply_to(number, (Exception,), self._close)
        conversation.send(reply)
        return op != "close"

    def _make_sampler(self, published: PublishedWeights | None) -> tuple[dict[str, Any], State]:
        sampler = self._build()
        if not isinstance(sampler, Sampler):
            raise TypeError(f"build: expected it to return a Sampler, got {type(sampler).__name__}")
        # First, so that it is closed if anything below fails.
        self._sampler = sampler
        self._agent = _agent_of(sampler)
        self._reader = _reader_of(sampler, self._agent, published)
        self._side_of = sides_of(sampler)
        return sampler.stats, _state_of(sampler, self._agent)

    def _make_batch(self, number: int, elapsed_steps: int) -> tuple[Any, ...]:
        sampler = self._sampler
        assert sampler is not None
        # The parent does not write the weights between its request and our BEGUN, so this needs no lock.
        version = 0 if self._reader is None else self._reader.load()
        # After the weights were copied and before the first step, so that the parent can publish without
        # waiting for the whole batch.
        self._conversation.send(HEAD.pack(BEGUN, number))
        samples, trajs = sampler.collect_batch(elapsed_steps)
        steps = sampler.count_steps(samples)
        # Before the answer, as this may copy the batch.
        side = self._side_of(samples)
        state = _state_of(sampler, self._agent)
        return tuple(Batch(version, side, steps, trajs, sampler.stats, state))

    def _load_state(self, state: State) -> tuple[dict[str, Any], State]:
        """Restore a state; return the sampler's stats and state for the parent."""
        sampler, agent = self._sampler, self._agent
        assert sampler is not None
        # The sampler first: if it refuses the state, the agent is unchanged.
        sampler.load_state(state["sampler"])
        if agent is not None:
            # Completed with the agent's current weights, which the state does not include.
            agent.load_state({**agent.state(), **state["agent"]})
        return sampler.stats, _state_of(sampler, agent)

    def _columns(self) -> tuple[list[Any], list[str]]:
        """Return a key for the seed of each environment, and the transforms that are not column-wise."""
        sampler = self._sampler
        if not isinstance(sampler, BatchSampler):
            raise TypeError(
                "learners: expected an AsynchronousSampler of a sampler that steps environments, such as "
                f"BasicSampler, got one of a {type(sampler).__name__}"
            )
        mixing = [type(one).__name__ for one in sampler.transforms if not one.column_wise]
        return seed_keys(sampler.cages.cages), mixing

    def _close(self) -> None:
        # Cleared first, as `run` calls this again after "close".
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.close()


def _agent_of(sampler: Sampler) -> Agent | None:
    agent = getattr(getattr(sampler, "handler", None), "agent", None)
    return agent if isinstance(agent, Agent) else None


def _reader_of(
    sampler: Sampler, agent: Agent | None, published: PublishedWeights | None
) -> WeightsReader | None:
    if published is None:
        return None
    if agent is None:
        raise TypeError(
            f"{type(sampler).__name__}: expected a sampler with `handler.agent`, which the weights go to"
        )
    return WeightsReader(agent, published)


def _state_of(sampler: Sampler, agent: Agent | None) -> State:
    """Return the states of the sampler and of the agent without weights."""
    # Without environments, whose states would be the largest part of each answer.
    return {
        "sampler": sampler.state(environments=False),
        "agent": {} if agent is None else state_without_weights(agent),
    }


def serve(connection: Connection, build: Callable[[], Sampler]) -> None:
    """Run a worker; the target of the child process."""
    SamplingWorker(connection, build).run()
