"""Rollout workers whose every step, fragment, crash and load is compared with `rollout_model`."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil
from rollout_model import Law, Reader, Step, Stream, oldest_of, place_of, weight_of
from scripted_cages import Script
from watched_parts import MishapError, WatchedBuffer, WatchedSender, WatchedStorage
from weighted_agent import WeightedAgent
from worker_plan import Plan

from parllel.distributed.rollouts import RolloutWorker
from parllel.errors import ClosedError, RestartsUsedUpError, WorkerError

PATIENCE_S = 60.0


class Producer:
    """A worker with its sender and model; the test itself is the thread in which it runs.

    Attributes:
        newest: the highest version that it was given.
        ended: what ended it, if anything did.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        buffer: WatchedBuffer,
        do: Callable[[Producer, str, int], None],
    ) -> None:
        self._do = do
        self.name, self.plan = name, plan
        self.newest = self.acting = self.crashes = 0
        self.ended: BaseException | None = None
        laws = [Law(lengths, plan.recurrent) for lengths in plan.lengths]
        self.streams = [Stream(law, plan.fragment_length) for law in laws]
        self.laws = laws
        self.scripts = [Script(plan.waits, i) for i in range(len(laws))]
        self._acting_at = [0] * len(laws)
        # What is to happen in the progress handler, and what while the agent acts.
        self._todo: dict[bool, list[tuple[int, str, int]]] = {False: [], True: []}
        self._seen = 0
        self.storage = WatchedStorage(buffer, self)
        self.schedule, self.sources = plan.schedule(1000 * int(name), self.scripts, self)
        self.sender = WatchedSender(
            self, self.storage, capacity=plan.capacity, max_staleness=plan.max_staleness
        )
        self.worker = RolloutWorker(
            self.schedule,
            fragment_length=plan.fragment_length,
            seed=3,
            producer=name,
            sender=self.sender,
            progress_handler=self._progress,
        )
        self.worker.handler.agent.acting = lambda: self._happen(acting=True)
        advance = self.schedule.advance

        def turn(*, may_act: bool) -> bool:
            self._begin_turn()
            return advance(may_act=may_act)

        self.schedule.advance = turn

    # ------------------------------------------------------------------ what happens

    def load(self, version: int) -> None:
        """Give the worker weights from another thread, and wait until it has them."""
        loaded: list[Any] = []

        def load() -> None:
            try:
                weights = WeightedAgent.weights(weight_of(version))
                loaded.append(self.worker.load_weights(weights, version))
            except BaseException as error:
                loaded.append(error)

        thread = threading.Thread(target=load)
        thread.start()
        thread.join(PATIENCE_S)
        if self.ended:
            assert [type(one) for one in loaded] == [ClosedError]
            return
        assert loaded == [version > self.newest]
        self.newest = max(self.newest, version)

    def run(self, n_steps: int, events: list[tuple[int, str, int]]) -> None:
        """Run the worker for some steps; events are `(after how many steps, what, number)`.

        After an even number they happen in the progress handler, else when the agent acts next.
        """
        for acting in (False, True):
            self._todo[acting] = [
                (self._seen + after, what, n)
                for after, what, n in sorted(events)
                if after % 2 == acting
            ]
        before = self.n_steps
        with warnings.catch_warnings():
            # An environment without restarts left is parked.
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                made = self.worker.run(n_steps)
            except BaseException as error:
                self._end(error)
                return
        assert self.ended is None
        assert made == self.n_steps - before == self.worker.n_steps - before
        if self.plan.kind == "rows":
            self._settle()

    def _end(self, error: BaseException) -> None:
        allowed: list[Any] = [ClosedError, MishapError, RestartsUsedUpError]
        if not self.plan.restarting:
            allowed.append(WorkerError)
        if not isinstance(error, tuple(allowed)):
            raise error
        if isinstance(error, RestartsUsedUpError):
            assert len(self.schedule.parked) == len(self.streams)
        self.ended = self.ended or error

    def wait_in_vain(self) -> None:
        """Note that there was no room for what is made."""
        self._do(self, "full", 0)

    def fail(self, what: str, number: int) -> None:
        """Let an environment die or hang."""
        if what == "hang" and not self.plan.restarting:
            return  # only an EnvWorker is impatient
        if self.plan.places != "real":
            self.scripts[number % len(self.scripts)].fault = what
            return
        source = self.sources[number % len(self.sources)]
        pid = getattr(source, "cage", source).pid
        # The number of one that is gone may be that of anything.
        if pid in {child.pid for child in psutil.Process().children()}:
            os.kill(pid, signal.SIGKILL if what == "kill" else signal.SIGSTOP)

    def _begin_turn(self) -> None:
        self.acting = self.newest
        assert self.worker.version == self.acting
        self._settle()

    def _settle(self, streams: list[Stream] | None = None) -> None:
        limit = self.plan.max_staleness
        if limit is not None:
            for stream in self.streams if streams is None else streams:
                stream.settle(self.newest - limit)

    def _progress(self, record: Any) -> None:
        number = record.environment
        stream = self.streams[number]
        info, place = record.agent_info, place_of(record.observation)
        step = stream.step(place, int(info.draw), record.version)
        # One step at most has been chosen before the weights that came with the last one.
        assert self._acting_at[number] <= record.version <= self.acting
        self._acting_at[number] = self.acting
        self._check_record(record, step)
        self._seen += 1
        self._happen(acting=False)
        if self.plan.kind == "ready":
            self._settle([stream])

    def _happen(self, *, acting: bool) -> None:
        todo = self._todo[acting]
        while todo and todo[0][0] <= self._seen:
            _, what, number = todo.pop(0)
            self._do(self, what, number)

    def _check_record(self, record: Any, step: Step) -> None:
        recurrent, rows = self.plan.recurrent, self.plan.kind == "rows"
        mark, episode, count = step.place
        last = (mark, episode, count + 1)
        waits = recurrent and rows
        begins = (mark, episode + 1, 0) if step.done and not waits else last
        assert place_of(record.next_observation) == begins
        kept = step.done if recurrent else step.truncated
        final = None if record.final_observation is None else place_of(record.final_observation)
        assert final == (last if kept and not waits else None)
        info = record.agent_info
        assert (float(record.reward), bool(record.terminated), bool(record.truncated)) == (
            step.reward,
            step.terminated,
            step.truncated,
        )
        assert (int(record.action), float(info.weight)) == (step.action, step.weight)

    # ------------------------------------------------------------------ what there is

    @property
    def n_steps(self) -> int:
        return sum(stream.n_steps for stream in self.streams)

    def still(self, full: bool, too_old: Callable[[Any], bool]) -> bool:
        """Return whether nothing is sent any more, as nothing is left or the buffer takes no more.

        too_old: whether the buffer drops a fragment.
        """
        sender = self.sender
        # What leaves the queue is counted before the lock is free again.
        with sender._changed:
            queued = sender.queued
            if not sender._thread.is_alive() or not queued:
                return True
            if sender._error is not None:
                return False
        first = sender.put_so_far[-queued]
        moves = self.storage.mishaps or sender.is_stale(oldest_of(first)) or too_old(first)
        return full and not moves and first.key not in self.storage.buffer.arrived

    def check(self) -> None:
        """Compare all fragments and counters with the model; nothing may be on its way."""
        sender, counts = self.sender, self.sender.ledger.counts()
        sender.ledger.check()
        put = sender.put_so_far
        for number, stream in enumerate(self.streams):
            mine = [fragment for fragment in put if fragment.environment == number]
            expected = stream.expected
            # Of what ended the worker, the model may not have seen the last steps.
            assert len(mine) == len(expected) or (self.ended and len(mine) > len(expected))
            for fragment, one in zip(mine, expected, strict=False):
                one.check(fragment)
            reader = Reader(self.laws[number], self.plan.fragment_length)
            for fragment in mine:
                assert fragment.producer == self.name
                reader.read(fragment)
            accounted = sum(len(one.steps) for one in expected) + stream.n_dropped
            assert accounted + len(stream.begun) == stream.n_steps
        if not self.ended:
            assert sender.dropped == sum(stream.dropped for stream in self.streams)
        self._check_ledger(counts)

    def _check_ledger(self, counts: dict[str, int]) -> None:
        sender, storage = self.sender, self.storage
        n = len(sender.put_so_far)
        assert counts["produced"] == n + sender.dropped
        assert counts["accepted"] == len(storage.accepted)
        assert counts["rejected"] == len(storage.refused)
        assert counts["queued"] == sender.queued
        gone = {*storage.accepted, *storage.refused}
        assert len(gone) == len(storage.accepted) + len(storage.refused), "acknowledged twice"
        # What the buffer has is acknowledged, unless its answer was lost.
        known = storage.buffer.arrived.keys() - storage.forgotten
        assert not known.intersection(storage.refused)
        left = [f for f in sender.put_so_far[: n - counts["queued"]] if f.key not in gone]
        stale = counts["stale"] - sender.dropped
        assert stale + counts["lost"] == len(left)
        limit = self.plan.max_staleness
        fresh = [f for f in left if limit is None or self.newest - oldest_of(f) <= limit]
        assert len(fresh) <= counts["lost"]

    def close_worker(self) -> None:
        """Close the worker, whose plain cages report a process that died meanwhile."""
        died = () if self.plan.restarting else (WorkerError,)
        with suppress(*died):
            self.worker.close()

    def close_sender(self, timeout_s: float) -> None:
        """Close the sender, which may have an error that nobody has asked for."""
        with suppress(ClosedError, MishapError):
            self.sender.close(timeout_s)

    def end(self) -> None:
        """Leave nothing behind, whatever has failed."""
        self.close_worker()
        self.close_sender(0.0)

    def check_unchanged(self) -> None:
        """Compare the fragments with what they were when they were put."""
        for key, fragment in self.sender.known.items():
            assert fragment.digest() == self.sender.digests[key]
