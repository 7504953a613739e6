"""Sampling in a separate process while this one learns.

    this process     | optimise with batch k    | optimise with batch k+1  |
    sampling process |   batch k+1 | wait ...   |   batch k+2 | wait ...   |
                     ^ collect_batch returns k  ^ returns k+1

    this process                    shared memory                    sampling process
    publish          writes -->     weights, and their version       --> read before a batch begins
    the learner      reads <--      side of batch k
                                    the other side               <-- written: batch k + 1
    conversation     --> batch      pipe                             sampling_worker.py
                     <-- BEGUN      from here on the weights may be written again
                     <-- ANSWER     the side is complete, and this process's until the next batch but one

There are no locks: these two messages pass the right to write.
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
    """Samples the next batch in a separate process while the caller learns from the current one.

    `collect_batch` waits for the batch in progress, starts the next one, and returns. The next one
    uses the most recently published weights. These are one update old by the time the agent learns
    from the batch, so its staleness is 1. The caller publishes its weights after each update::

        with AsynchronousSampler(build, agent=agent) as sampler:
            samples, trajs = sampler.collect_batch(elapsed_steps)
            algorithm.optimize_agent(elapsed_steps, samples)
            sampler.publish()

    Batches are in shared memory, alternately on two sides. A sampler whose buffer was allocated with
    `switching=True` writes to the sides directly; batches of any other sampler are copied.

    Args:
        build: function that makes the sampler in the sampling process, with its own cages, handler
            and buffer. It is pickled by cloudpickle. The cages may start processes too, which end
            with the sampling process.
        agent: the agent being trained. The entries of its `state()` that its `models()` name are copied to
            the agent of the sampler's handler, which draws its own noise. With None, no weights are copied.
        max_staleness: how many updates may be published between the start of a batch and its use. With 0
            sampling and learning do not overlap; with 1 or more, one batch is made ahead. A batch
            that is too old when requested is dropped and made again.
        start_method: "fork", "forkserver" or "spawn"; default forkserver where it exists.
        timeout_s: time limit for building, and for one batch.
        name: name of the process, for messages.

    Attributes:
        ledger: counts of batches, `begun = returned + dropped + ahead`; at most one is ahead. Read-only.

    Raises:
        ValueError: for a negative max_staleness, a time-out that is not positive, or an agent that does not
            declare what it learns: `models()` must return {} if it learns nothing.
        WorkerError: later, if the process died or hangs. An exception raised in it is re-raised with its
            type, and its traceback as the cause. After either the sampler is closed.

    `close` does not close the agent in this process.
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
        # The answer to "build" is read on first use, so that this process can continue meanwhile.
        self._built = False
        self._steps = 0  # of the last batch
        self.ledger = Ledger("begun = returned + dropped + ahead")
        self._request = 0  # number of the last request
        self._begun = False  # whether the batch ahead has read the weights
        self._episodes: list[TrajInfo] = []  # of batches that were dropped
        self._inner_stats: dict[str, Any] = {}
        self._inner_state: State = {}
        self._waited_s = 0.0
        self._side = 0  # of the samples returned last
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
            self._close_weights()  # the process did not start, so nobody else frees them
            raise
        self._conversation = Conversation(child, timeout_s=timeout_s)
        self._ask("build", self._published, doing="before it was built")

    # ------------------------------------------------------------------ batches

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Wait for the batch in progress, start the next one, and return the finished batch.

        The samples are valid until the next call. The episodes include those of dropped batches. The inner
        sampler receives `elapsed_steps`, plus the steps of this batch for a batch made ahead.
        """
        self._await_ready()
        # From here, as waited_s does not include the time of building.
        begin = time.perf_counter()
        batch = self._next_batch(elapsed_steps)
        # Once is enough: the replacement is made with the current weights.
        if self.version - batch.version > self.max_staleness:
            self._drop(batch)
            batch = self._next_batch(elapsed_steps)
        self._waited_s = time.perf_counter() - begin
        self.ledger.add("returned", ahead=-1)
        self._keep(batch)
        self._version_of_batch = batch.version
        self._staleness = self.version - batch.version
        # Only now that this batch has been received: the sampling process writes the other side, so the
        # returned samples stay valid until the next call. With max_staleness=0 a batch made ahead would be
        # too old as soon as anything is published.
        if self.max_staleness:
            self._begin(elapsed_steps + batch.steps)
        # Remembered for `load_state`, which receives a batch of the other side only to drop it.
        array: Any = buffer_arrays(batch.side.samples)[0]
        self._side = array.side
        self._steps = batch.steps
        trajs, self._episodes = self._episodes + batch.trajs, []
        return batch.side.batch(), trajs

    def count_steps(self, samples: Samples) -> int:
        """Return the number of environment steps in the last batch, as counted by the inner sampler."""
        return self._steps

    def publish(self) -> int:
        """Publish the agent's current weights for batches that start from now on.

        Returns their version, which increases by one if the weights have changed.

        Raises:
            WrongStateError: if the sampler has no agent.
            ValueError: if the weights' shapes differ from the first ones.
            WorkerError: if the sampling process died or hangs.
        """
        self._conversation.check_open()
        if self._published is None or self._agent is None:
            raise WrongStateError(f"{self._name}: publish: there is no agent; pass agent=...")
        # The weights must not change while the batch ahead reads them. Usually it has read them by
        # now.
        if self._ahead and not self._begun:
            self._receive(f"to begin batch {self._number}", until_begun=True)
        # No batch is reading now: none is ahead, or the one ahead has sent BEGUN.
        return self._published.publish(self._agent)

    @property
    def version(self) -> int:
        """Version of the weights published last; 0 for the initial weights."""
        return 0 if self._published is None else self._published.version

    @property
    def version_of_batch(self) -> int:
        """Version of the weights used for the last batch."""
        return self._version_of_batch

    @property
    def agent(self) -> Agent | None:
        """The agent being trained, whose weights `publish` copies."""
        return self._agent

    @property
    def pid(self) -> int:
        """Process id of the sampling process."""
        return self._conversation.child.pid

    def columns(self) -> tuple[list[Any], list[str]]:
        """Return a key for the seed of each environment, and the transforms that are not column-wise.

        For several learners, each with some of the columns. Call it before the first batch.

        Raises:
            TypeError: if the inner sampler does not step environments itself.
        """
        self._await_ready()
        self._ask("columns", doing="before the first batch")
        found: tuple[list[Any], list[str]] = self._answer("before the first batch")
        return found

    def _begin(self, elapsed_steps: int) -> None:
        # Cleared before the request is sent: the weights must stay unchanged until its BEGUN arrives.
        self._begun = False
        self._ask("batch", elapsed_steps, doing=f"before batch {self._number + 1}")
        # After the request: if it could not be sent, no batch is ahead.
        self.ledger.add("begun", "ahead")

    def _next_batch(self, elapsed_steps: int) -> Batch:
        """Wait for the batch ahead, starting one if there is none. It counts as ahead until it is used."""
        if not self._ahead:
            self._begin(elapsed_steps)
        return Batch(*self._answer(f"during batch {self._number}"))

    @property
    def _ahead(self) -> int:
        return self.ledger.counts()["ahead"]

    @property
    def _number(self) -> int:
        """Number of the last batch started."""
        return self.ledger.counts()["begun"]

    def _drop(self, batch: Batch) -> None:
        self.ledger.add("dropped", ahead=-1)
        # The episodes count in the statistics all the same; only the samples are too old.
        self._episodes += batch.trajs

    def _keep(self, batch: Batch) -> None:
        self._inner_stats, self._inner_state = batch.stats, batch.state

    # ------------------------------------------------------------------ statistics and state

    @property
    def stats(self) -> dict[str, Any]:
        """The inner sampler's stats after the last batch, and:

        `staleness`, the number of updates published since that batch was started; `version_of_batch`;
        `waited_s`, the time spent waiting for it; `dropped_batches`, the total number of dropped batches.
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

    def overview(self) -> str:
        """Return the number of restarts in the sampling process, if there were any."""
        restarts = self._inner_stats.get("restarts")
        if not restarts:
            return ""
        return f"{restarts} restarts, {self._inner_stats['crashed_episodes']} crashed episodes"

    def state(self, *, environments: bool = True) -> State:
        """Return the states of the inner sampler and of its agent after the last batch.

        The weights are not included, as they belong to the agent being trained. Nor are the
        environments, which are already one batch ahead: a resumed run begins new episodes.
        """
        if self._conversation.broken is None:
            self._await_ready()
        # From the last answer: the process is working on the batch ahead, and its state has moved on.
        return self._inner_state

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. A batch made ahead is dropped.

        Raises:
            ValueError: if the inner sampler refuses the state. The sampler remains usable.
        """
        self._await_ready()
        # One request at a time, so the batch ahead is finished first; it belongs to the old state.
        if self._ahead:
            batch = self._next_batch(0)
            self._drop(batch)
            # Receiving it has switched the side of the caller's samples, so switch back.
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
        """Return the reply to the last request. For a batch, BEGUN precedes the answer."""
        try:
            while True:
                reply = self._conversation.receive(self._request, doing)
                # Remembered: BEGUN arrives once per batch, and either `publish` or the answer's reader gets
                # it.
                self._begun = self._begun or reply[:1] == BEGUN
                if until_begun or reply[:1] != BEGUN:
                    return reply
        except BaseException as error:
            self._after_error(error)
            raise

    def _after_error(self, error: BaseException) -> None:
        """End everything, unless the error was an answer after which the process continues."""
        if not isinstance(error, Exception):  # after Ctrl-C the batch is not awaited again
            self._conversation.break_off(error)
        # The process has ended, so nobody else uses the weights.
        if self._conversation.broken is not None:
            self._close_weights()

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Close the inner sampler and end the process. Idempotent.

        A batch in progress is completed if that takes only a few seconds; its errors are not
        raised.

        Raises:
            Exception: an error from closing the inner sampler, after everything has ended.
        """
        try:
            self._conversation.begin_close()
            # Replies of a batch in progress arrive before the answer to "close", and are dropped.
            self._conversation.close(forgive=True)
        finally:
            self._close_weights()

    def _close_weights(self) -> None:
        # The sampling process's mapping ends with that process.
        if self._published is not None:
            self._published.shared.close()
