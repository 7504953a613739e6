"""The supervisor of the workers on Ray: starts and restarts them, and distributes new weights.

    trainer   publish, statuses, stop -->  RolloutManager  <-- report, answered by newer weights --  workers
              notice <-- answered once a worker has raised or is parked

One event loop runs all of it. Each worker has a coroutine that waits for the end of its `run`, so a death is
noticed when Ray notices it, without polling. This actor owns the workers, and they die with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError

from parllel.distributed.rollouts.on_ray.answers import LATE_S, why
from parllel.distributed.rollouts.on_ray.publication import Publication
from parllel.distributed.rollouts.on_ray.ray_replay_buffer import RayReplayBuffer
from parllel.distributed.rollouts.on_ray.raylet_watch import end_with_raylet
from parllel.distributed.rollouts.on_ray.rollout_worker_wrapper import RolloutWorkerWrapper
from parllel.distributed.rollouts.on_ray.start_actor import start_actor
from parllel.distributed.rollouts.on_ray.worker_options import WorkerOptions, described
from parllel.distributed.rollouts.published_parts import PublishedLayout
from parllel.distributed.rollouts.rollout_worker import worker_name
from parllel.distributed.rollouts.worker_end import WorkerEnd
from parllel.distributed.rollouts.worker_records import WorkerRecords
from parllel.distributed.rollouts.worker_status import WorkerStatus
from parllel.errors import RestartsUsedUpError
from parllel.system.processes.exceptions import pack_exception
from parllel.system.processes.restart_budget import RestartBudget
from parllel.types import State

# A report costs the event loop some milliseconds, so each of a thousand workers reports every ten seconds.
_REPORTS_PER_S = 100.0
_MAX_REPORT_S = 10.0
# Time-out for the status of an actor.
_ANSWER_S = 2.0


class Failure(NamedTuple):
    """A worker's name and the fatal error that ended it, as packed by `pack_exception`."""

    worker: str
    error: bytes


class RolloutManager:
    """Supervises the wrappers of one run.

    Args:
        build: argument of `RolloutWorkerWrapper`.
        n_workers: number of workers.
        options: resources and restarts of each worker.
        strategy: Ray's scheduling strategy for the workers.
        buffer: storage for the fragments.
        statistics: the actor that receives the episodes.
    """

    def __init__(
        self,
        build: bytes,
        n_workers: int,
        options: WorkerOptions,
        strategy: Any,
        buffer: RayReplayBuffer,
        statistics: Any,
    ) -> None:
        end_with_raylet()
        self._build, self._n_workers, self._options = build, n_workers, options
        self._strategy, self._buffer, self._statistics = strategy, buffer, statistics
        self._actors: dict[int, Any] = {}
        self._placed: set[int] = set()  # workers whose current actor has been placed on a node
        self._records = WorkerRecords()
        self._added: dict[str, int] = {}  # fragments in the buffer, by name
        # Failures, and texts of warnings, read by the trainer by number: an answer that is lost can be
        # requested again.
        self._notices: list[Failure | str] = []
        self._publication: Publication | None = None
        self._layout: PublishedLayout | None = None
        self._changed = asyncio.Event()
        self._stopping = False

    # ------------------------------------------------------------------ what the trainer calls

    async def start(self) -> None:
        """Start all workers, without waiting for them."""
        self._here = ray.get_runtime_context().current_actor
        self._tasks = [asyncio.create_task(self._keep(n)) for n in range(self._n_workers)]

    async def publish(self, weights: State, version: int, fingerprint: str) -> bool:
        """Offer weights to the workers. Does nothing and returns False unless they are newer."""
        if self._publication is not None and version <= self._publication.version:
            return False
        # The old reference is dropped here; Ray frees its object once no worker holds it.
        # Holds up this loop for one copy only, because the workers fetch it by themselves.
        self._publication = Publication.of(weights, version, fingerprint)
        self._wake()  # answers all pending reports
        return True

    async def layout(self, timeout_s: float) -> PublishedLayout | None:
        """Return the layout of the weights once the first worker is built, or None on time-out."""
        await self._wait(lambda: self._layout is not None, timeout_s)
        return self._layout

    async def notice(self, number: int, timeout_s: float) -> Failure | str | None:
        """Return the notice with this number once it exists, or None on time-out."""
        await self._wait(lambda: len(self._notices) > number, timeout_s)
        return self._notices[number] if len(self._notices) > number else None

    async def statuses(self, *, fresh: bool) -> list[WorkerStatus]:
        """Return the status of each start of a worker.

        fresh: True to query running workers now. False to return their last reports, which are a
            few tenths of a second old.
        """
        if fresh:
            asked = [_answered(actor.status.remote()) for actor in self._actors.values()]
            for found in await asyncio.gather(*asked):
                if found is not None:
                    self._note(found)
        # None if the buffer is dead, which the trainer learns from the workers' errors.
        added: dict[str, int] | None = await _answered(self._buffer.actor.added.remote())
        self._added = self._added if added is None else added
        return self._records.statuses(self._added)

    async def stop(self, timeout_s: float) -> list[WorkerStatus]:
        """Stop all workers, kill those that do not end in time, and return their statuses."""
        # First, so that the supervisors do not take the coming ends for deaths, and restart the workers.
        self._stopping = True
        self._wake()
        actors = list(self._actors.values())
        for number, actor in self._actors.items():
            if number in self._placed:
                # Not awaited, because one may hang. Its supervisor sees its end.
                actor.stop.remote()
            else:
                ray.kill(actor)  # not placed yet, so it cannot answer
        # A supervisor ends with its worker, after recording the worker's final status.
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        # Both lists: a worker may have been replaced while `stop` waited.
        for actor in [*actors, *self._actors.values()]:
            ray.kill(actor)
        self._records.end_all(f"killed, as it did not end within {timeout_s:g} s of stop")
        return await self.statuses(fresh=False)

    # ------------------------------------------------------------------ what workers call

    async def report(
        self, status: WorkerStatus, layout: PublishedLayout | None, known: int, wait_s: float
    ) -> Publication | None:
        """Record a worker's status, then wait for weights newer than version `known`, and return them.

        wait_s: minimum time-out in seconds. It is longer if there are many workers.
        """
        wait_s = max(wait_s, min(self._n_workers / _REPORTS_PER_S, _MAX_REPORT_S))
        # Before the wait, so that the status is known while it is new.
        self._note(status)
        # Workers share one script, so the first layout holds for all.
        if layout is not None and self._layout is None:
            self._layout = layout
            self._wake()
        # Also answered at `stop`, because the end of a worker's `run` waits for its follower.
        await self._wait(lambda: self._newer_than(known) or self._stopping, wait_s)
        return self._publication if self._newer_than(known) else None

    def _newer_than(self, known: int) -> bool:
        return self._publication is not None and self._publication.version > known

    def _note(self, status: WorkerStatus, *, final: bool = False) -> None:
        for reason in self._records.note(status, final=final):
            self._tell(f"{status.name}: {reason}")

    # ------------------------------------------------------------------ supervision

    async def _keep(self, number: int) -> None:
        """Supervise a worker. Errors become notices, because nobody awaits this task's result."""
        try:
            await self._supervise(number)
        except Exception as error:
            self._tell(Failure(worker_name(number, 1), pack_exception(error)))

    async def _supervise(self, number: int) -> None:
        options, start = self._options, 0
        budget = RestartBudget(options.restarts, options.within_s)
        while not self._stopping:
            start += 1
            name = worker_name(number, start)
            self._records.begin(name)
            try:
                end = await self._run(number, name)
                if start > 1 and end is not None and end.kind == "raised":
                    # An error of the first start is taken for a mistake in the script. That one worked, so
                    # this error may be transient, such as a full disk.
                    self._tell(f"{name} raised, and is started again: {end.text}")
                    raise _EndedError(f"it raised {end.text}")
            except _EndedError as ended:
                if self._stopping:
                    return
                self._records.end(name, "died", str(ended))
                try:
                    pause_s = budget.restart(f"{name}: {ended}")
                except RestartsUsedUpError as used_up:
                    self._park(name, str(used_up))
                    return
                await self._wait(lambda: self._stopping, pause_s)
            else:
                if end is not None and end.kind == "parked":
                    self._park(name, end.text)
                    return
                self._records.end(name, "ended", "")
                if end is not None:
                    self._tell(Failure(name, end.error))
                return

    async def _run(self, number: int, name: str) -> WorkerEnd | None:
        """Start a worker, wait for its end, and return its error, if any.

        Raises:
            _EndedError: if it died, or could not be started.
        """
        options = self._options
        wrapper = start_actor(
            RolloutWorkerWrapper,
            self._build,
            name,
            self._buffer,
            self._statistics,
            self._here,
            num_cpus=options.cpus,
            num_gpus=options.gpus,
            resources=dict(options.resources),
            # One thread for `run`, two for calls that must be answered meanwhile, and one for the buffer.
            max_concurrency=4,
            scheduling_strategy=self._strategy,
        )
        # Before the first `await`, so that `stop` finds every actor that was started.
        self._actors[number] = wrapper
        self._placed.discard(number)
        try:
            self._note(
                await asyncio.wait_for(_awaited(wrapper.status.remote()), options.start_timeout_s)
            )
            # Its first answer shows that Ray has found room for it and its process runs.
            self._placed.add(number)
            end: WorkerEnd | None = await wrapper.run.remote()
            # The final status, including what was sent during closing.
            if (status := await _answered(wrapper.status.remote(), LATE_S)) is not None:
                self._note(status, final=True)
            if end is not None and end.kind == "unbuilt":
                # Reported at once: there may be no working worker until the restarts are used up.
                self._tell(f"{name} could not be built: {end.text}")
                raise _EndedError(f"it could not be built: {end.text}")
            return end
        except asyncio.TimeoutError:
            raise _EndedError(
                f"no node had {described(options.reserved)} for it within {options.start_timeout_s:g} s"
            ) from None
        except RayError as death:
            raise _EndedError(why(death)) from None
        finally:
            # Frees its resources. Also, an actor that Ray cannot reach looks dead here but may still run: it
            # must not go on next to its replacement.
            ray.kill(wrapper)

    def _park(self, name: str, reason: str) -> None:
        self._records.end(name, "parked", reason)
        self._tell(f"{name} is parked: {reason}")
        if self._records.count("parked") == self._n_workers:
            error = RestartsUsedUpError(f"all workers are parked: {reason}")
            self._tell(Failure(name, pack_exception(error)))

    def _tell(self, notice: Failure | str) -> None:
        self._notices.append(notice)
        self._wake()

    # ------------------------------------------------------------------ waiting

    def _wake(self) -> None:
        # A new event for later waiters, since one that is set would never block again.
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until a condition holds, or the time-out has passed."""
        deadline = monotonic() + timeout_s
        while not condition() and (left_s := deadline - monotonic()) > 0:
            # No `await` since the condition was checked, so no change can be missed.
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)


class _EndedError(Exception):
    """A worker died, or could not be started."""


async def _awaited(reference: Any) -> Any:
    """Await a Ray reference, in the coroutine that asyncio's functions require."""
    return await reference


async def _answered(reference: Any, timeout_s: float = _ANSWER_S) -> Any:
    """Await a Ray reference; None if its actor is dead or does not answer in time."""
    # A stopped actor, or one on a disconnected node, must not hold up the statuses of all others.
    with suppress(RayError, asyncio.TimeoutError):
        return await asyncio.wait_for(_awaited(reference), timeout_s)
    return None
