"""Sampling in a process of its own, while this one learns.

    this process     | optimise with batch k    | optimise with batch k+1  |
    sampling process |   batch k+1 | wait ...   |   batch k+2 | wait ...   |
                     ^ collect_batch returns k  ^ returns k+1

    this process                    memory that both have            sampling process
    publish          writes -->     weights, and their version       --> read before a batch begins
    the learner      reads <--      side of batch k
                                    the other side               <-- written: batch k + 1
    conversation     --> batch      pipe                             sampling_worker.py
                     <-- BEGUN      from here on the weights may be written again
                     <-- ANSWER     the side is complete, and is this process's until the next but one

Nothing is locked: the two messages say who may write what.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from parllel.agents.agent import Agent
from parllel.buffers.conversation import Conversation
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays, buffer_set_attr
from parllel.cages.env_registry import RegistryTarget
from parllel.cages.traj_info import TrajInfo
from parllel.errors import WrongStateError
from parllel.logging.ledger import Ledger
from parllel.samplers.published_weights import PublishedWeights
from parllel.samplers.publishing_sampler import PublishingSampler
from parllel.samplers.sampler import Sampler
from parllel.samplers.sampling_worker import BEGUN, Batch, serve
from parllel.system.processes.child import Child
from parllel.types import State


class AsynchronousSampler(PublishingSampler):
    """Let a sampler make the next batch in a process of its own while the caller learns from this one.

    `collect_batch` waits for the batch that is being made, begins the next, and returns. That next one is
    made with the weights that were published last, so by the time it is learned from they are one update
    old: its staleness is 1. The caller publishes its weights after each update::

        with AsynchronousSampler(build, agent=agent) as sampler:
            samples, trajs = sampler.collect_batch(elapsed_steps)
            algorithm.optimize_agent(elapsed_steps, samples)
            sampler.publish()

    Batches are in shared memory, alternately on two sides. A sampler whose buffer was allocated with
    `switching=True` writes them there itself; those of any other are copied.

    Args:
        build: makes the sampler in that process, with cages, handler and buffer of its own; it travels by
            cloudpickle. The cages may have processes too, which end with it.
        agent: what is trained; those entries of its `state()` that its `models()` name are copied to the
            agent of the sampler's handler, which has noise of its own. None: `build` says everything.
        max_staleness: how many updates may be published between the beginning of a batch and its use. With 0
            nothing overlaps; with 1 or more one batch is made ahead. A batch that is too old when it is asked
            for is dropped, and made again.
        start_method: "fork", "forkserver" or "spawn"; default forkserver where it exists.
        timeout_s: how long building, or one batch, may take.
        name: what messages call the process.

    Attributes:
        ledger: of batches, `begun = returned + dropped + ahead`; at most one is ahead. Only to be read.

    Raises:
        ValueError: for a negative max_staleness, a time-out that is not positive, or an agent that does not
            say what it learns: `models()` returns {} if that is nothing.
        WorkerError: later, when the process died or hangs. What is raised in it arrives as itself, with its
            traceback as the cause. After either the sampler is closed.

    The agent in this process is not closed by `close`.
    """

    def __init__(
        self,
        build: Callable[[], Sampler],
        *,
        agent: Agent | None = None,
        max_staleness: int = 1,
        start_method: str | None = None,
        timeout_s: float = 60.0,
        name: str = "sampling process",
    ) -> None:
        if max_staleness < 0:
            raise ValueError(f"max_staleness: expected 0 or more, got {max_staleness}")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s: expected a positive number of seconds, got {timeout_s}")
        self.max_staleness = max_staleness
        self._agent = agent
        self._name = name
        # The answer to "build" is read when it is first needed, so this process can go on meanwhile.
        self._built = False
        self._steps = 0  # of the last batch
        self.ledger = Ledger("begun = returned + dropped + ahead")
        self._request = 0  # number of the last request
        self._begun = False  # whether the batch ahead has read its weights
        self._episodes: list[TrajInfo] = []  # of batches that were dropped
        self._inner_stats: dict[str, Any] = {}
        self._inner_state: State = {}
        self._waited_s = 0.0
        self._side = 0  # of the samples that were returned last
        self._version_of_batch = self._staleness = 0
        self._published = None if agent is None else PublishedWeights.of(agent)
        try:
            target = RegistryTarget(serve)
            child = Child(
                target,
                (build,),
                name=name,
                start_method=start_method,
                start_timeout_s=timeout_s,
            )
        except BaseException:
            self._close_weights()  # allocated before the process that did not start
            raise
        self._conversation = Conversation(child, timeout_s=timeout_s)
        self._ask("build", self._published, doing="before it was built")

    # ------------------------------------------------------------------ batches

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Return the batch that was made meanwhile, and begin the next.

        The samples stay as they are until the next call. Episodes of batches that were dropped come along.
        The inner sampler gets `elapsed_steps`; for a batch made ahead, with the steps of this one added.
        """
        self._await_ready()
        # After that, as waited_s is about batches, not about building.
        begin = time.perf_counter()
        batch = self._next_batch(elapsed_steps)
        # Once is enough: the batch that follows is made with the weights of now.
        if self.version - batch.version > self.max_staleness:
            self._drop(batch)
            batch = self._next_batch(elapsed_steps)
        self._waited_s = time.perf_counter() - begin
        self.ledger.add("returned", ahead=-1)
        self._keep(batch)
        self._version_of_batch = batch.version
        self._staleness = self.version - batch.version
        # Only now, when the batch before has been received: the sampling process writes the other side, so
        # the samples that are returned stay as they are until the next call. With max_staleness=0 it would
        # be too old as soon as anything is published.
        if self.max_staleness:
            self._begin(elapsed_steps + batch.steps)
        array: Any = buffer_arrays(batch.side.samples)[0]
        self._side = array.side
        self._steps = batch.steps
        trajs, self._episodes = self._episodes + batch.trajs, []
        return batch.side.batch(), trajs

    def count_steps(self, samples: Samples) -> int:
        """Return what the inner sampler counted of the last batch."""
        return self._steps

    def publish(self) -> int:
        """Let batches that are begun from now on be made with the agent's present weights.

        Returns their version, which is one more than before if the weights have changed.

        Raises:
            WrongStateError: if the sampler was given no agent.
            ValueError: if the weights are of other shapes than at first.
            WorkerError: as `collect_batch`.
        """
        self._conversation.check_open()
        if self._published is None or self._agent is None:
            raise WrongStateError(f"{self._name}: publish: there is no agent; give agent=...")
        # They must not be read while they change. They have been by now, unless this comes very soon.
        if self._ahead and not self._begun:
            self._receive(f"to begin batch {self._number}", until_begun=True)
        return self._published.publish(self._agent)

    @property
    def version(self) -> int:
        """Version of the weights that were published last; 0 is what the agent began with."""
        return 0 if self._published is None else self._published.version

    @property
    def version_of_batch(self) -> int:
        """Version of the weights that the last batch was made with."""
        return self._version_of_batch

    @property
    def agent(self) -> Agent | None:
        """The agent that is trained, whose weights `publish` copies."""
        return self._agent

    @property
    def pid(self) -> int:
        """Process id of the sampling process."""
        return self._conversation.child.pid

    def _begin(self, elapsed_steps: int) -> None:
        self._begun = False
        self._ask("batch", elapsed_steps, doing=f"before batch {self._number + 1}")
        self.ledger.add("begun", "ahead")

    def _next_batch(self, elapsed_steps: int) -> Batch:
        """Wait for the batch that is being made; begin it if there is none. It is ahead until it is used."""
        if not self._ahead:
            self._begin(elapsed_steps)
        return Batch(*self._answer(f"during batch {self._number}"))

    @property
    def _ahead(self) -> int:
        return self.ledger.counts()["ahead"]

    @property
    def _number(self) -> int:
        """Number of the batch that was begun last."""
        return self.ledger.counts()["begun"]

    def _drop(self, batch: Batch) -> None:
        self.ledger.add("dropped", ahead=-1)
        # The episodes were played, so they count in the statistics; only their samples are too old.
        self._episodes += batch.trajs

    def _keep(self, batch: Batch) -> None:
        self._inner_stats, self._inner_state = batch.stats, batch.state

    # ------------------------------------------------------------------ statistics and state

    @property
    def stats(self) -> dict[str, Any]:
        """Return the inner sampler's stats as they were after the last batch, and of that batch:

        `staleness`, updates that were published since it was begun; `version_of_batch`; `waited_s`, how
        long it was waited for; `dropped_batches`, how many were too old, in all.
        """
        if self._conversation.broken is None:
            self._await_ready()
        return {
            **self._inner_stats,
            "staleness": self._staleness,
            "version_of_batch": self._version_of_batch,
            "waited_s": self._waited_s,
            "dropped_batches": self.ledger.counts()["dropped"],
        }

    def state(self, *, environments: bool = True) -> State:
        """Return the states of the inner sampler and of its agent, as they were after the last batch.

        The agent's weights are left out: they are those of the agent that is trained. So are the
        environments: a batch was ahead of this one, and a run that goes on begins new episodes.
        """
        if self._conversation.broken is None:
            self._await_ready()
        # From the last answer: the process is busy with the batch ahead, and its state has moved on.
        return self._inner_state

    def load_state(self, state: State) -> None:
        """Take back what `state` returned. A batch that was made ahead is dropped.

        Raises:
            ValueError: as the inner sampler; it may go on then.
        """
        self._await_ready()
        # One request at a time: the batch ahead is finished first, and was made in the state before.
        if self._ahead:
            batch = self._next_batch(0)
            self._drop(batch)
            # Taking it in has changed the side of the samples that the caller holds.
            buffer_set_attr(batch.side.samples, "side", self._side)
        self._ask("load_state", state, doing="before load_state")
        self._inner_stats, self._inner_state = self._answer("during load_state")

    # ------------------------------------------------------------------ messages

    def _await_ready(self) -> None:
        """Wait until the sampler is built."""
        self._conversation.check_open()
        if not self._built:
            self._inner_stats, self._inner_state = self._answer("while the sampler was built")
            self._built = True

    def _ask(self, op: str, *args: Any, doing: str) -> None:
        try:
            self._request = self._conversation.ask(op, *args, doing=doing)
        except BaseException as error:
            self._after_error(error)
            raise

    def _answer(self, doing: str) -> Any:
        """Return the answer to the last request."""
        return self._conversation.value_of(self._receive(doing))

    def _receive(self, doing: str, *, until_begun: bool = False) -> bytes:
        """Return the reply to the last request, which for a batch says first that it has begun."""
        try:
            while True:
                reply = self._conversation.receive(self._request, doing)
                # Remembered, as it comes once for each batch, to whichever method waits first.
                self._begun = self._begun or reply[:1] == BEGUN
                if until_begun or reply[:1] != BEGUN:
                    return reply
        except BaseException as error:
            self._after_error(error)
            raise

    def _after_error(self, error: BaseException) -> None:
        """End everything, unless the process goes on after an error that it answered with."""
        if not isinstance(error, Exception):  # Ctrl-C: the batch is not waited for again
            self._conversation.break_off(error)
        # The process has ended by now, and with it the other reader.
        if self._conversation.broken is not None:
            self._close_weights()

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Let the process close its cages and end; may be called twice.

        A batch that is being made is finished, if that takes no longer than some seconds. What goes wrong in
        it is not raised.

        Raises:
            Exception: what closing the inner sampler raised, once everything has ended.
        """
        try:
            self._conversation.begin_close()
            # Replies of a batch that is being made come before the answer to this, and are dropped.
            self._conversation.close(forgive=True)
        finally:
            self._close_weights()

    def _close_weights(self) -> None:
        # Its mapping in the sampling process goes with that process.
        if self._published is not None:
            self._published.shared.close()
